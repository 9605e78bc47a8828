package ledgertest

// checkAgrees proposes at random, and compares every answer with what State.Check says at the same state.
func checkAgrees(t *trial) {
	w := newWalk(t)
	for range t.scaled(250) {
		w.step()
	}
	t.Must(t.now().Verify(), "the state at the end")
}
