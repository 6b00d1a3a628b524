"""The predictors that utility is measured by, one module each, behind one protocol."""
