package ledgertest

// RuleNames are the names of all rules.
func RuleNames() (names []string) {
	for _, r := range rules {
		names = append(names, r.Name)
	}
	return names
}

// Reached is up to where a recorder has read.
func (r *Recorder) Reached() uint64 { return uint64(r.reached()) }
