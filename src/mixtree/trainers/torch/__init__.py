"""Any torch module as a trainer."""
