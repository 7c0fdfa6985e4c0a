"""Stands for the models of embedded processors."""


class AbstractCProcessModel:
    pass


class CLoihiProcessModel(AbstractCProcessModel):
    pass
