package main

import (
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
)

// printTable prints a line for each process, what the columns mean, and what the log and the records contain.
func printTable(s *show, state *orbit.State, book *audit.Book) {
	fmt.Fprintf(s.out, "\n%-9s %7s %7s %9s %10s %8s %7s\n", "process", "placed", "passes", "conflicts", "infeasible", "unknown", "errors")
	for i, name := range teams {
		t := s.tally(i)
		fmt.Fprintf(s.out, "%-9s %7d %7d %9d %10d %8d %7d\n", name, t.Committed, t.Rounds, t.Conflicts, t.Infeasible, t.Unknown, t.Failed+t.Invalid)
	}
	fmt.Fprintf(s.out, `
placed      acknowledged to the process; what was committed when it was killed, and never acknowledged, is in the log alone
conflicts   both planned the same capsule, or the same room: the ledger took the first, the other planned anew
infeasible  plans that never held
unknown     etcd did not answer: sent again, under the same id

from every version of the log: %d commits, %d placements, %d of them twice; %d commits acknowledged to the processes
in the records: %d assigned to %s, %d to %s, %d unassigned

`, book.Commits, book.Places, book.Doubled, s.answers.Count(audit.Committed), of(state, teams[0]), teams[0], of(state, teams[1]), teams[1], of(state, ""))
}
