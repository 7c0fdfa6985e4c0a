"""The one thing that pyproject.toml cannot say: a compiled part that may be missing (asp_neuro/compiled)."""

from setuptools import Extension, setup

# No rounding is left to the compiler; that nobody traps exceptions of floating point lets it use vectors
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]

setup(
    ext_modules=[
        Extension(
            "asp_neuro.compiled._kernels",
            ["asp_neuro/compiled/kernels.c"],
            depends=["asp_neuro/compiled/through.h"],
            extra_compile_args=FLAGS,
            optional=True,  # without a compiler everything works, on numpy
        )
    ]
)
