// Pinocchio's own C++ on the states that Python hands over: results for checking, and seconds for all states.
//
// Built by `benchmarks.native` into a shared library, once with each compiler, so that all contestants can run interleaved
// in one process. The model comes as text, one joint a line (see `benchmarks.pinocchio_peer.describe`), so that no URDF library
// is needed; joints have the specialised types that Pinocchio's URDF reader chose. Matrices are left as Pinocchio computes
// them, upper triangle only.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <pinocchio/algorithm/aba-derivatives.hpp>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/crba.hpp>
#include <pinocchio/algorithm/jacobian.hpp>
#include <pinocchio/algorithm/kinematics.hpp>
#include <pinocchio/algorithm/rnea-derivatives.hpp>
#include <pinocchio/algorithm/rnea.hpp>
#include <pinocchio/multibody.hpp>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace pin = pinocchio;
using pin::Convention;

// Pinocchio's Data has four tensors of nv³ numbers for second derivatives, set to zero when it is made: 32 GB for 1000
// joints. No function here reads or writes them. So that long chains can be raced, what is allocated in one piece of 1 GB or
// more is a stretch of addresses that all stand for the same few megabytes, and holds no data. The linker sends the
// calls of this library here (--wrap, see `benchmarks.pinocchio_peer`); smaller pieces come from malloc as ever.
extern "C" void * __real_malloc(std::size_t size);
extern "C" void __real_free(void * address);

namespace
{
  constexpr std::size_t LARGE = std::size_t(1) << 30, SAME = std::size_t(1) << 24;

  std::map<void *, std::size_t> & large_ones()
  {
    static auto * all = new std::map<void *, std::size_t>; // for good: somebody may call free while the process ends
    return *all;
  }

  // The first part is memory of its own, for Eigen notes there what to free; all others are one and the same.
  void * addresses(std::size_t size)
  {
    static const int memory = memfd_create("tensors", 0);
    if (memory < 0 || ftruncate(memory, SAME) != 0) return nullptr;
    const std::size_t whole = (size + SAME - 1) / SAME * SAME;
    void * begin = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    for (std::size_t at = SAME; at < whole; at += SAME)
    {
      void * part = static_cast<char *>(begin) + at;
      if (mmap(part, SAME, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) == MAP_FAILED)
      {
        munmap(begin, whole);
        return nullptr;
      }
    }
    large_ones()[begin] = whole;
    return begin;
  }
} // namespace

extern "C" void * __wrap_malloc(std::size_t size)
{
  return size < LARGE ? __real_malloc(size) : addresses(size);
}

extern "C" void __wrap_free(void * address)
{
  const auto found = large_ones().find(address);
  if (found == large_ones().end()) return __real_free(address);
  munmap(address, found->second);
  large_ones().erase(found);
}

namespace
{
  struct Bench
  {
    pin::Model model;
    std::unique_ptr<pin::Data> data;
    pin::JointIndex tip = 0; // the joint whose Jacobian is computed
    pin::Data::Matrix6x J;
    std::vector<Eigen::VectorXd> q, v, a, tau;
  };

  pin::JointModel joint_of(const std::string & type, const Eigen::Vector3d & axis)
  {
    if (type == "JointModelRX") return pin::JointModelRX();
    if (type == "JointModelRY") return pin::JointModelRY();
    if (type == "JointModelRZ") return pin::JointModelRZ();
    if (type == "JointModelPX") return pin::JointModelPX();
    if (type == "JointModelPY") return pin::JointModelPY();
    if (type == "JointModelPZ") return pin::JointModelPZ();
    if (type == "JointModelRevoluteUnaligned") return pin::JointModelRevoluteUnaligned(axis);
    if (type == "JointModelPrismaticUnaligned") return pin::JointModelPrismaticUnaligned(axis);
    if (type == "JointModelFreeFlyer") return pin::JointModelFreeFlyer();
    throw std::runtime_error("joint type " + type + " is not known here; add it to joint_of");
  }

  template<class M>
  void read(std::istream & in, M & matrix)
  {
    for (Eigen::Index i = 0; i < matrix.rows(); ++i)
      for (Eigen::Index j = 0; j < matrix.cols(); ++j)
        in >> matrix(i, j);
  }

  void read_model(std::istream & in, Bench & b)
  {
    std::size_t joints = 0;
    Eigen::Vector3d gravity;
    in >> joints >> b.tip;
    read(in, gravity);
    b.model.gravity.linear() = gravity;
    for (std::size_t k = 1; k <= joints; ++k)
    {
      pin::JointIndex parent = 0;
      std::string type;
      Eigen::Vector3d axis, p, com;
      Eigen::Matrix3d R, I;
      double mass = 0.0;
      in >> parent >> type;
      read(in, axis), read(in, R), read(in, p);
      in >> mass;
      read(in, com), read(in, I);
      if (!in) throw std::runtime_error("the model's text ends in joint " + std::to_string(k));
      const auto id = b.model.addJoint(parent, joint_of(type, axis), pin::SE3(R, p), "joint" + std::to_string(k));
      b.model.appendBodyToJoint(id, pin::Inertia(mass, com, I));
    }
    b.data = std::make_unique<pin::Data>(b.model);
    b.J = pin::Data::Matrix6x::Zero(6, b.model.nv);
  }

  std::vector<Eigen::VectorXd> rows(const double * x, int count, int size)
  {
    std::vector<Eigen::VectorXd> out;
    for (int i = 0; i < count; ++i)
      out.push_back(Eigen::Map<const Eigen::VectorXd>(x + static_cast<std::ptrdiff_t>(i) * size, size));
    return out;
  }

  // Calls visit(compute), compute(i) being the chosen function on state i, so that the loop around it is compiled with it.
  // The numbers are those of `benchmarks.pinocchio_peer.FUNCTIONS`.
  template<class Visit>
  bool with_function(Bench & b, int function, Visit visit)
  {
    const pin::Model & m = b.model;
    pin::Data & d = *b.data;
    switch (function)
    {
    case 0: visit([&](std::size_t i) { pin::rnea(m, d, b.q[i], b.v[i], b.a[i]); }); return true;
    case 1: visit([&](std::size_t i) { pin::crba(m, d, b.q[i], Convention::LOCAL); }); return true;
    case 2: visit([&](std::size_t i) { pin::crba(m, d, b.q[i], Convention::WORLD); }); return true;
    case 3: visit([&](std::size_t i) { pin::aba(m, d, b.q[i], b.v[i], b.tau[i], Convention::LOCAL); }); return true;
    case 4: visit([&](std::size_t i) { pin::aba(m, d, b.q[i], b.v[i], b.tau[i], Convention::WORLD); }); return true;
    case 5: visit([&](std::size_t i) { pin::computeMinverse(m, d, b.q[i]); }); return true;
    case 6: visit([&](std::size_t i) { pin::forwardKinematics(m, d, b.q[i]); }); return true;
    case 7: visit([&](std::size_t i) { pin::computeJointJacobian(m, d, b.q[i], b.tip, b.J); }); return true;
    case 8: visit([&](std::size_t i) { pin::computeRNEADerivatives(m, d, b.q[i], b.v[i], b.a[i]); }); return true;
    case 9: visit([&](std::size_t i) { pin::computeABADerivatives(m, d, b.q[i], b.v[i], b.tau[i]); }); return true;
    default: return false;
    }
  }

  // Copies the result of one state, each matrix as Eigen keeps it; returns the place behind it.
  double * store(const Bench & b, int function, double * out)
  {
    const auto put = [&out](const auto & matrix) {
      using Plain = typename std::decay_t<decltype(matrix)>::PlainObject;
      Eigen::Map<Plain>(out, matrix.rows(), matrix.cols()) = matrix;
      out += matrix.size();
    };
    switch (function)
    {
    case 0: put(b.data->tau); break;
    case 1:
    case 2: put(b.data->M); break;
    case 3:
    case 4: put(b.data->ddq); break;
    case 5: put(b.data->Minv); break;
    case 6:
      for (pin::JointIndex k = 1; k < static_cast<pin::JointIndex>(b.model.njoints); ++k)
        put(b.data->oMi[k].toHomogeneousMatrix());
      break;
    case 8: put(b.data->dtau_dq), put(b.data->dtau_dv), put(b.data->M); break;
    case 9: put(b.data->ddq_dq), put(b.data->ddq_dv), put(b.data->Minv); break;
    default: put(b.J); break;
    }
    return out;
  }
} // namespace

// A model with its states, or null and the reason in `error`.
EXPORT Bench * bench_open(
  const char * text, int count, const double * q, const double * v, const double * a, const double * tau, char * error,
  std::size_t error_size)
{
  try
  {
    auto b = std::make_unique<Bench>();
    std::istringstream in(text);
    read_model(in, *b);
    b->q = rows(q, count, b->model.nq);
    b->v = rows(v, count, b->model.nv);
    b->a = rows(a, count, b->model.nv);
    b->tau = rows(tau, count, b->model.nv);
    return b.release();
  }
  catch (const std::exception & reason)
  {
    std::snprintf(error, error_size, "%s", reason.what());
    return nullptr;
  }
}

EXPORT void bench_close(Bench * b)
{
  delete b;
}

// The results of the first `count` states, one behind the other.
EXPORT void bench_run(Bench * b, int function, std::size_t count, double * out)
{
  with_function(*b, function, [&](auto compute) {
    for (std::size_t i = 0; i < count; ++i)
    {
      compute(i);
      out = store(*b, function, out);
    }
  });
}

// Seconds for all states, negative for a function that is not known. Results stay in `Data`, or go to `out` if it is given.
EXPORT double bench_time(Bench * b, int function, double * out)
{
  double seconds = -1.0;
  with_function(*b, function, [&](auto compute) {
    const auto begin = std::chrono::steady_clock::now();
    if (out == nullptr)
      for (std::size_t i = 0; i < b->q.size(); ++i)
        compute(i);
    else
      for (std::size_t i = 0; i < b->q.size(); ++i)
      {
        compute(i);
        out = store(*b, function, out);
      }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  });
  return seconds;
}
