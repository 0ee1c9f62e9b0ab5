// Instantiates the non-template core of fmt once, instead of in every file that formats text.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE

template FMT_API auto detail::thousands_sep_impl<char>(locale_ref) -> detail::thousands_sep_result<char>;
template FMT_API auto detail::decimal_point_impl(locale_ref) -> char;
template FMT_API auto detail::dragonbox::to_decimal(float x) noexcept -> detail::dragonbox::decimal_fp<float>;
template FMT_API auto detail::dragonbox::to_decimal(double x) noexcept -> detail::dragonbox::decimal_fp<double>;

FMT_END_NAMESPACE
