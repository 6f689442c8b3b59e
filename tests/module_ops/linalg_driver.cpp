// The operators of linear algebra.
#include "declare/linalg_check.h"
#include "declare/linalg_cholesky.h"
#include "declare/linalg_eig.h"
#include "declare/linalg_eigh.h"
#include "declare/linalg_ldl.h"
#include "declare/linalg_lu.h"
#include "declare/linalg_matrix_exp.h"
#include "declare/linalg_qr.h"
#include "declare/linalg_svd.h"
#include "declare/linalg_triangular.h"
#include "declare/lu_unpack.h"
#include "driver.h"

namespace {

int32_t flag(const Arguments& a, size_t i) { return static_cast<int32_t>(a.ints.at(i)); }

const std::map<std::string, Entry> kOperators = {
    {"lu_factor",
     {3, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_lu_factor(a.tensors[0], &r[0], &r[1], &r[2]); }}},
    {"det", {3, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_det(a.tensors[0], &r[0], &r[1], &r[2]); }}},
    {"slogdet",
     {4, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_slogdet(a.tensors[0], &r[0], &r[1], &r[2], &r[3]); }}},
    {"inv", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_inv(a.tensors[0], &r[0], &r[1]); }}},
    {"solve",
     {4,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_linalg_solve(a.tensors[0], a.tensors[1], flag(a, 0), flag(a, 1), &r[0], &r[1], &r[2], &r[3]);
      }}},
    {"lu_solve",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_linalg_lu_solve(a.tensors[0], a.tensors[1], a.tensors[2], flag(a, 0), flag(a, 1), &r[0]);
      }}},
    {"lu_unpack",
     {3,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_lu_unpack(a.tensors[0], a.tensors[1], flag(a, 0), flag(a, 1), &r[0], &r[1], &r[2]);
      }}},
    {"cholesky",
     {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_cholesky(a.tensors[0], flag(a, 0), &r[0], &r[1]); }}},
    {"cholesky_solve",
     {1,
      [](Arguments& a, Tensor** r) { aoti_torch_cpu_cholesky_solve(a.tensors[0], a.tensors[1], flag(a, 0), &r[0]); }}},
    {"cholesky_inverse",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_cholesky_inverse(a.tensors[0], flag(a, 0), &r[0]); }}},
    {"solve_triangular",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_linalg_solve_triangular(a.tensors[0], a.tensors[1], flag(a, 0), flag(a, 1), flag(a, 2), &r[0]);
      }}},
    {"triangular_solve",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_triangular_solve(a.tensors[0], a.tensors[1], flag(a, 0), flag(a, 1), flag(a, 2), &r[0], &r[1]);
      }}},
    {"geqrf", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_geqrf(a.tensors[0], &r[0], &r[1]); }}},
    {"qr", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_qr(a.tensors[0], a.text, &r[0], &r[1]); }}},
    {"householder_product",
     {1,
      [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_householder_product(a.tensors[0], a.tensors[1], &r[0]); }}},
    {"ormqr",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_ormqr(a.tensors[0], a.tensors[1], a.tensors[2], flag(a, 0), flag(a, 1), &r[0]);
      }}},
    {"ldl_factor",
     {3, [](Arguments& a,
            Tensor** r) { aoti_torch_cpu_linalg_ldl_factor(a.tensors[0], flag(a, 0), &r[0], &r[1], &r[2]); }}},
    {"ldl_solve",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_linalg_ldl_solve(a.tensors[0], a.tensors[1], a.tensors[2], flag(a, 0), &r[0]);
      }}},
    {"eigh",
     {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_eigh(a.tensors[0], a.text, flag(a, 0), &r[0], &r[1]); }}},
    {"svd",
     {3, [](Arguments& a,
            Tensor** r) { aoti_torch_cpu_linalg_svd(a.tensors[0], flag(a, 0), flag(a, 1), &r[0], &r[1], &r[2]); }}},
    {"eig", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_eig(a.tensors[0], &r[0], &r[1]); }}},
    {"eigvals", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_eigvals(a.tensors[0], &r[0]); }}},
    {"matrix_exp", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_matrix_exp(a.tensors[0], &r[0]); }}},
    {"check_errors",
     {1,
      [](Arguments& a, Tensor** r) { aoti_torch_cpu_linalg_check_errors(a.tensors[0], a.text, flag(a, 0), &r[0]); }}},
};

}  // namespace
