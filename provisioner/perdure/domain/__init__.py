"""Pure values and decisions: no I/O, no clock, nothing imported from the rest of Perdure."""
