// Rollouts by Pinocchio's forward dynamics (ABA) and the classical Runge-Kutta method of order 4, one sample after another.
//
// Built by `benchmarks.native`. The model comes as text (see `benchmarks.pinocchio_peer.describe`) and has joints of one
// freedom, so that coordinates are moved by adding to them: nothing is spent on the manifold.

#include <chrono>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/multibody.hpp>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace pin = pinocchio;

namespace
{
  struct Bench
  {
    pin::Model model;
    std::unique_ptr<pin::Data> data;
  };

  pin::JointModel joint_of(const std::string & type, const Eigen::Vector3d & axis)
  {
    if (type == "JointModelRX") return pin::JointModelRX();
    if (type == "JointModelRY") return pin::JointModelRY();
    if (type == "JointModelRZ") return pin::JointModelRZ();
    if (type == "JointModelRevoluteUnaligned") return pin::JointModelRevoluteUnaligned(axis);
    throw std::runtime_error("joint type " + type + " is not known here; add it to joint_of");
  }

  template<class M>
  void read(std::istream & in, M & matrix)
  {
    for (Eigen::Index i = 0; i < matrix.rows(); ++i)
      for (Eigen::Index j = 0; j < matrix.cols(); ++j)
        in >> matrix(i, j);
  }

  template<pin::Convention C>
  void roll(Bench & b, int count, int steps, double h, const double * q0, const double * v0, double * out)
  {
    const int n = b.model.nv;
    const Eigen::VectorXd tau = Eigen::VectorXd::Zero(n);
    Eigen::VectorXd q(n), v(n), qs(n), v2(n), v3(n), v4(n), a1(n), a2(n), a3(n);
    for (int i = 0; i < count; ++i)
    {
      q = Eigen::Map<const Eigen::VectorXd>(q0 + i * n, n);
      v = Eigen::Map<const Eigen::VectorXd>(v0 + i * n, n);
      for (int k = 0; k < steps; ++k)
      {
        a1 = pin::aba(b.model, *b.data, q, v, tau, C);
        v2.noalias() = v + 0.5 * h * a1;
        qs.noalias() = q + 0.5 * h * v;
        a2 = pin::aba(b.model, *b.data, qs, v2, tau, C);
        v3.noalias() = v + 0.5 * h * a2;
        qs.noalias() = q + 0.5 * h * v2;
        a3 = pin::aba(b.model, *b.data, qs, v3, tau, C);
        v4.noalias() = v + h * a3;
        qs.noalias() = q + h * v3;
        const auto & a4 = pin::aba(b.model, *b.data, qs, v4, tau, C);
        q += h / 6.0 * (v + 2.0 * (v2 + v3) + v4);
        v += h / 6.0 * (a1 + 2.0 * (a2 + a3) + a4);
      }
      Eigen::Map<Eigen::VectorXd>(out + 2 * i * n, n) = q;
      Eigen::Map<Eigen::VectorXd>(out + 2 * i * n + n, n) = v;
    }
  }
}

EXPORT void * make(const char * text)
{
  std::istringstream in(text);
  auto b = std::make_unique<Bench>();
  std::size_t joints = 0, tip = 0;
  Eigen::Vector3d gravity;
  in >> joints >> tip;
  read(in, gravity);
  b->model.gravity.linear() = gravity;
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
    if (!in) return nullptr;
    const auto id = b->model.addJoint(parent, joint_of(type, axis), pin::SE3(R, p), "joint" + std::to_string(k));
    b->model.appendBodyToJoint(id, pin::Inertia(mass, com, I));
  }
  b->data = std::make_unique<pin::Data>(b->model);
  return b.release();
}

// Seconds; `out` has (q, v) of each sample at its end. `world` chooses Pinocchio's other convention.
EXPORT double run(void * bench, int world, int count, int steps, double h, const double * q, const double * v, double * out)
{
  auto & b = *static_cast<Bench *>(bench);
  const auto begin = std::chrono::steady_clock::now();
  if (world)
    roll<pin::Convention::WORLD>(b, count, steps, h, q, v, out);
  else
    roll<pin::Convention::LOCAL>(b, count, steps, h, q, v, out);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
