// Pinocchio's constrained forward dynamics on states that Python hands over: results for checking, and seconds.
//
// Built by `benchmarks.native`. The model comes as text: joints, a line each, then loops (see `benchmarks.loops.describe`).

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <pinocchio/algorithm/constrained-dynamics.hpp>
#include <pinocchio/algorithm/proximal.hpp>
#include <pinocchio/multibody.hpp>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace pin = pinocchio;

namespace
{
  struct Bench
  {
    pin::Model model;
    std::unique_ptr<pin::Data> data;
    std::vector<pin::RigidConstraintModel, Eigen::aligned_allocator<pin::RigidConstraintModel>> held;
    std::vector<pin::RigidConstraintData, Eigen::aligned_allocator<pin::RigidConstraintData>> datas;
    pin::ProximalSettings settings;
  };

  template<class M>
  void read(std::istream & in, M & matrix)
  {
    for (Eigen::Index i = 0; i < matrix.rows(); ++i)
      for (Eigen::Index j = 0; j < matrix.cols(); ++j)
        in >> matrix(i, j);
  }

  pin::SE3 read_pose(std::istream & in)
  {
    Eigen::Matrix3d R;
    Eigen::Vector3d p;
    read(in, R), read(in, p);
    return pin::SE3(R, p);
  }
}

EXPORT void * make(const char * text, double mu, int iterations)
{
  std::istringstream in(text);
  auto * b = new Bench;
  int joints = 0, loops = 0;
  Eigen::Vector3d gravity;
  in >> joints >> loops;
  read(in, gravity);
  b->model.gravity.linear() = gravity;
  for (int k = 0; k < joints; ++k)
  {
    pin::JointIndex parent = 0;
    Eigen::Vector3d axis, com;
    Eigen::Matrix3d I;
    double mass = 0.0;
    in >> parent;
    read(in, axis);
    const pin::SE3 placement = read_pose(in);
    in >> mass;
    read(in, com), read(in, I);
    const pin::JointModel joint = axis == Eigen::Vector3d::UnitZ() ? pin::JointModel(pin::JointModelRZ())
                                                                   : pin::JointModel(pin::JointModelRevoluteUnaligned(axis));
    const auto id = b->model.addJoint(parent, joint, placement, "joint" + std::to_string(k));
    b->model.appendBodyToJoint(id, pin::Inertia(mass, com, I));
  }
  for (int k = 0; k < loops; ++k)
  {
    pin::JointIndex one = 0, two = 0;
    int rows = 0;
    in >> rows >> one;
    const pin::SE3 A = read_pose(in);
    in >> two;
    const pin::SE3 B = read_pose(in);
    const auto kind = rows == 6 ? pin::CONTACT_6D : pin::CONTACT_3D;
    b->held.emplace_back(kind, b->model, one, A, two, B, pin::LOCAL);
  }
  b->data = std::make_unique<pin::Data>(b->model);
  for (const auto & c : b->held)
    b->datas.emplace_back(c);
  b->settings = pin::ProximalSettings(1e-12, mu, iterations);
  pin::initConstraintDynamics(b->model, *b->data, b->held, b->datas);
  return b;
}

EXPORT double run(void * bench, int count, const double * q, const double * v, const double * tau, double * out)
{
  auto & b = *static_cast<Bench *>(bench);
  const int n = b.model.nv;
  std::vector<Eigen::VectorXd> qs, vs, taus;
  for (int i = 0; i < count; ++i)
  {
    qs.push_back(Eigen::Map<const Eigen::VectorXd>(q + i * n, n));
    vs.push_back(Eigen::Map<const Eigen::VectorXd>(v + i * n, n));
    taus.push_back(Eigen::Map<const Eigen::VectorXd>(tau + i * n, n));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i)
  {
    pin::constraintDynamics(b.model, *b.data, qs[i], vs[i], taus[i], b.held, b.datas, b.settings);
    Eigen::Map<Eigen::VectorXd>(out + i * n, n) = b.data->ddq;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
