package ledgertest

// checkAgrees makes random proposals, and compares every answer with that of State.Check at the same state.
func checkAgrees(t *trial) {
	w := newWalk(t)
	for range t.scaled(250) {
		w.step()
	}
	t.Must(t.now().Verify(), "the state at the end")
}
