package ledgertest

// This file has the cases that run a Load, without faults and with all of them.

func checkLoad(t *trial) {
	t.load(Load{Seed: t.suite.Seed, Operations: t.scaled(5000)})
}

func checkFaultyLoad(t *trial) {
	t.load(Load{Seed: t.suite.Seed + 1, Operations: t.scaled(3000), Faults: &Faults{
		Seed: t.suite.Seed, Unavailable: .03, Lost: .05, Applied: .1, Panic: .02, Delay: .03,
	}})
}

// load runs a load and shows its figures.
func (t *trial) load(l Load) {
	f, err := l.Run(t.ctx, t.handles()...)
	t.Must(err, "the load")
	t.Notef("%v", f)
	if f.Committed < f.Operations/10 || f.Conflicts == 0 {
		t.Failf("the load has hardly any commits or conflicts: %v", f)
	}
}
