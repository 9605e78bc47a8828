package logledger

// LimitEntries sets how many bytes the changes of one entry may have. Call it before the first proposal.
func (l *Ledger) LimitEntries(n int) { l.mostChanges = n }
