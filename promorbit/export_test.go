package promorbit

// Kept returns how many entries of pending capsules a collector keeps in order of age.
func (l *Ledger) Kept() (n int) {
	for i := range l.backlog.oldest {
		n += len(l.backlog.oldest[i])
	}
	return n
}

// Makers returns how many makers of proposals are remembered.
func (m *Engines) Makers() int { return len(m.makers) }
