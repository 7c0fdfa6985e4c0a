"""The one thing that pyproject.toml cannot say: a compiled part that may be missing (asp_neuro/compiled)."""

from setuptools import Extension, setup

FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi"]  # no rounding is left to it

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
