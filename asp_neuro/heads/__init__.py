"""Spiking heads as integer networks: the specification, and the forms of neuron that run it (`spec.FORMS`)."""

from asp_neuro.heads.soft.form import SoftForm
from asp_neuro.heads.spec import FORMS
from asp_neuro.heads.stock.form import StockForm

FORMS[SoftForm.name] = SoftForm()
FORMS[StockForm.name] = StockForm()
