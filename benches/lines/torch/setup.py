"""Builds the package: `pip install --no-build-isolation .`"""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="distances",
    version="0.1.0",
    packages=["distances"],
    ext_modules=[CppExtension("distances._C", ["distances.cpp"], extra_compile_args=["-O3"])],
    cmdclass={"build_ext": BuildExtension},
)
