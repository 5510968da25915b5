"""What every room stands on: errors, lengths, units, where the committed data is."""
