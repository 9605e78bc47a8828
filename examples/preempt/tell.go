package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// account is a recount of the ledger's history that does not use the ledger's own counts: where each capsule is, and
// how many of each group run.
type account struct {
	*world
	on    map[orbit.CapsuleID]orbit.NodeID
	specs map[orbit.CapsuleID]*orbit.Spec
	runs  map[string]int
	// How many capsules of one module were evicted for capsules of another, by a text that names both modules; and the
	// first few evictions as sentences.
	displaced map[string]int
	stories   []string
	// How often each capsule was evicted; and how often it was evicted for the same other capsule during one wait of
	// the latter.
	evicted map[orbit.CapsuleID]int
	pairs   map[displacement]int
	// How often each capsule began to wait again because it had run and left its node.
	waits map[orbit.CapsuleID]int
	// By module, how many capsules were moved off cordoned nodes, released back to pending from them, and lost with their node.
	moved, sent, lost map[string]int
	// How often a commit with an eviction, a move or a release left fewer of a group than its budget requires.
	broken int
	// For each group, the least number that ran in each round.
	least map[string][]int
}

// displacement is a victim, the capsule for which it was evicted, and the number of the wait during which that capsule
// waited.
type displacement struct {
	victim, by orbit.CapsuleID
	wait       int
}

// read reads the history since the cluster was filled.
func read(w *world) *account {
	a := &account{world: w, on: map[orbit.CapsuleID]orbit.NodeID{}, specs: map[orbit.CapsuleID]*orbit.Spec{}, runs: map[string]int{},
		displaced: map[string]int{}, evicted: map[orbit.CapsuleID]int{}, pairs: map[displacement]int{}, waits: map[orbit.CapsuleID]int{},
		moved: map[string]int{}, sent: map[string]int{}, lost: map[string]int{}, least: map[string][]int{}}
	for c := range w.base.Capsules() {
		a.specs[c.ID] = c.Spec
		if c.Placed() {
			a.on[c.ID] = c.Node
			a.runs[c.Spec.Group]++
		}
	}
	changes, err := w.ledger.Changes(context.Background(), w.base.Revision())
	if err != nil {
		log.Fatal(err)
	}
	round := 0
	a.begin()
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		for round < len(w.ends)-1 && changes[0].Revision > w.ends[round] {
			round++
			a.begin()
		}
		a.commit(changes[:n], round)
		changes = changes[n:]
	}
	return a
}

// begin begins a round: the least number of each group starts at the number that runs now.
func (a *account) begin() {
	for _, group := range a.groups {
		a.least[group] = append(a.least[group], a.runs[group])
	}
}

// commit enters the changes of one commit into the account. A budget is broken if the commit evicts, moves or releases
// a member, and fewer of the group run than the budget requires. As in the ledger, capsules that the same commit places
// do not count as running.
func (a *account) commit(changes []orbit.Change, round int) {
	lost, placed, wished := map[orbit.NodeID]bool{}, map[orbit.CapsuleID]orbit.NodeID{}, map[string]bool{}
	for _, c := range changes {
		switch do := c.Do.(type) {
		case orbit.PutNode:
			lost[do.Node.ID] = lost[do.Node.ID] || do.Node.State == orbit.Lost
		case orbit.Place:
			placed[do.Capsule] = do.Node
		case orbit.Submit:
			for _, id := range do.IDs {
				a.specs[id] = do.Spec
			}
		}
	}
	for _, c := range changes {
		switch do := c.Do.(type) {
		case orbit.Evict:
			a.leaves(do.Capsule)
			wished[a.specs[do.Capsule].Group] = true
			if do.For == "" {
				a.moved[a.kind(do.Capsule)]++
				continue
			}
			a.evicted[do.Capsule]++
			a.pairs[displacement{do.Capsule, do.For, a.waits[do.For]}]++
			a.displaced[a.kind(do.Capsule)+" for "+a.kind(do.For)]++
			if len(a.stories) < 8 {
				a.stories = append(a.stories, fmt.Sprintf("round %2d: %s of priority %d left %s to make way for %s of priority %d",
					round, do.Capsule, a.specs[do.Capsule].Priority, do.From, do.For, a.specs[do.For].Priority))
			}
		case orbit.Release:
			a.leaves(do.Capsule)
			switch {
			case do.Final:
			case lost[c.Node]:
				a.lost[a.kind(do.Capsule)]++
			default:
				wished[a.specs[do.Capsule].Group] = true
				a.sent[a.kind(do.Capsule)]++
			}
		}
	}
	for group := range wished {
		if needed, _ := a.budget(group); a.runs[group] < needed {
			a.broken++
		}
	}
	for group := range a.least {
		a.least[group][round] = min(a.least[group][round], a.runs[group])
	}
	for id, node := range placed {
		a.on[id] = node
		a.runs[a.specs[id].Group]++
	}
}

// budget returns how many of a group must run after an eviction, a move or a release, and how many there should be; 0
// and 0 for a group without a budget.
func (a *account) budget(group string) (needed, all int) {
	b, ok := a.base.Budget(orbit.BudgetID(group))
	if !ok {
		return 0, 0
	}
	return b.Budget.Expected - b.Budget.Missing, b.Budget.Expected
}

// leaves takes a capsule off its node, if it is on one.
func (a *account) leaves(id orbit.CapsuleID) {
	if a.on[id] != "" {
		delete(a.on, id)
		a.waits[id]++
		a.runs[a.specs[id].Group]--
	}
}

// kind returns the module of a capsule.
func (a *account) kind(id orbit.CapsuleID) string { return a.specs[id].Module }

// print prints the account. It reports whether no budget was broken, no capsule was evicted twice during one wait of
// the same work, and all urgent work runs.
func (a *account) print() bool {
	fmt.Println("\nThe first evictions:")
	for _, s := range a.stories {
		fmt.Println("  " + s)
	}
	fmt.Printf("\n%-22s %s\n", "evicted", counts(a.displaced))
	fmt.Printf("%-22s %s\n", "moved by the drain", counts(a.moved))
	fmt.Printf("%-22s %s\n", "released by the drain", counts(a.sent))
	fmt.Printf("%-22s %s\n", "lost with spot nodes", counts(a.lost))
	fmt.Println("\nThe least number of services that ran, by group, one column for each round. _ is the minimum of the budget;")
	fmt.Println("x is fewer, which only lost nodes may cause:")
	for _, group := range a.groups {
		needed, all := a.budget(group)
		fmt.Printf("  %-8s %s  %d to %d of %d; the budget requires %d\n",
			group, bar(a.least[group], needed, all), slices.Min(a.least[group]), slices.Max(a.least[group]), all, needed)
	}
	again, twice, runs, came := a.figures()
	fmt.Printf("\n%d capsules were evicted again later, for other work: of equal victims the one that started last is evicted first.\n", again)
	fmt.Println("Evicted twice counts those that were evicted again for the same work while that still waited.")
	fmt.Printf("budgets broken %d\nevicted twice %d\nurgent placed %d of %d\n", a.broken, twice, runs, came)
	return a.broken == 0 && twice == 0 && runs == came
}

// figures returns how many capsules were evicted more than once (again), how many evictions repeated an earlier one
// during the same wait of the same work (twice), how many urgent capsules run (runs), and how many were submitted
// (came).
func (a *account) figures() (again, twice, runs, came int) {
	for _, times := range a.evicted {
		again += min(1, times-1)
	}
	for _, times := range a.pairs {
		twice += times - 1
	}
	for id, spec := range a.specs {
		if spec.Module != "urgent" {
			continue
		}
		if came++; a.on[id] != "" {
			runs++
		}
	}
	return again, twice, runs, came
}

// counts lists the names with their counts, the largest count first.
func counts(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], strings.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", of[name], name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// bar draws one column for each number: an x if the number is less than needed, otherwise a bar whose height shows
// where the number lies between needed and all.
func bar(of []int, needed, all int) string {
	columns := []rune("_▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range of {
		if n < needed {
			b.WriteRune('x')
			continue
		}
		b.WriteRune(columns[min((n-needed)*(len(columns)-1)/max(1, all-needed), len(columns)-1)])
	}
	return b.String()
}
