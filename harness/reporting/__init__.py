"""From a study to what is read: one HTML file, figures, tables."""
