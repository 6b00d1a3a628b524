"""The sections of a report: parts of an evaluation's plain data as tables and charts, ready for the template."""
