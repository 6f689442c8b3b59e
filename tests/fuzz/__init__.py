"""Fuzzers. Those of the C++ runtime are programs (CMakeLists.txt); test_*.py fuzzes what is Python."""
