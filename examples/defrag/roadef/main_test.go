package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// draw draws a small instance in the format of the challenge whose first assignment keeps the rules.
func draw(t *rapid.T) *instance {
	var model, first strings.Builder
	n := func(label string, least, most int) int { return rapid.IntRange(least, most).Draw(t, label) }
	line := func(w *strings.Builder, numbers ...int) { fmt.Fprintln(w, strings.Trim(fmt.Sprint(numbers), "[]")) }
	resources, machines, services, processes := n("resources", 1, 3), n("machines", 2, 3), n("services", 1, 3), n("processes", 2, 5)
	line(&model, resources)
	for range resources {
		line(&model, n("transient", 0, 1), n("weight", 0, 9))
	}
	line(&model, machines)
	own, uses := make([][]int, processes), make([][]int, machines)
	for m := range uses {
		uses[m] = make([]int, resources)
	}
	for p := range own {
		own[p] = append(own[p], n("service", 0, services-1))
		at := n("first", 0, machines-1)
		line(&first, at)
		for r := range resources {
			own[p] = append(own[p], n("needs", 0, 5))
			uses[at][r] += own[p][r+1]
		}
		own[p] = append(own[p], n("move cost", 0, 3))
	}
	for m := range machines {
		numbers := []int{n("neighborhood", 0, 1), n("location", 0, 1)}
		for r := range resources {
			numbers = append(numbers, uses[m][r]+n("free", 0, 5))
		}
		for range resources {
			numbers = append(numbers, n("soft", 0, 8))
		}
		for range machines {
			numbers = append(numbers, n("to", 0, 2))
		}
		line(&model, numbers...)
	}
	line(&model, services)
	for s := range services {
		if s > 0 && n("depends", 0, 3) == 0 {
			line(&model, n("spread", 0, 2), 1, s-1)
		} else {
			line(&model, n("spread", 0, 2), 0)
		}
	}
	line(&model, processes)
	for p := range own {
		line(&model, own[p]...)
	}
	line(&model, 1)
	line(&model, 0, resources-1, n("target", 0, 3))
	line(&model, n("balance weight", 0, 3))
	line(&model, n("weight", 0, 3), n("weight", 0, 3), n("weight", 0, 3))
	in, err := read(strings.NewReader(model.String()), strings.NewReader(first.String()))
	require.NoError(t, err)
	if _, ok := in.judge(in.first); !ok {
		t.Skip("the first assignment breaks a rule")
	}
	return in
}

// judge computes the cost of an assignment, and whether it keeps all rules, from the description of the challenge alone.
func (in *instance) judge(at []int) (cost int64, ok bool) {
	ok = true
	moves := map[int]int{}
	for m, own := range in.machines {
		use, peak := make([]int64, len(in.resources)), make([]int64, len(in.resources))
		seen := map[int]bool{}
		for p, of := range in.processes {
			if at[p] == m {
				ok = ok && !seen[of.service]
				seen[of.service] = true
			}
			for r, x := range of.needs {
				if at[p] == m {
					use[r] += x
				}
				if at[p] == m || in.first[p] == m && in.resources[r].transient {
					peak[r] += x
				}
			}
		}
		for r := range in.resources {
			ok = ok && peak[r] <= own.hard[r]
			cost += in.resources[r].weight * max(0, use[r]-own.soft[r])
		}
		for _, b := range in.balances {
			cost += b.weight * max(0, b.target*(own.hard[b.first]-use[b.first])-(own.hard[b.second]-use[b.second]))
		}
	}
	for s, of := range in.services {
		locations, hoods := map[int]bool{}, map[int]bool{}
		for p := range in.processes {
			if in.processes[p].service == s {
				locations[in.machines[at[p]].location], hoods[in.machines[at[p]].neighborhood] = true, true
			}
		}
		ok = ok && len(locations) >= of.spread
		for _, d := range of.dependsOn {
			for p := range in.processes {
				if in.processes[p].service == d {
					delete(hoods, in.machines[at[p]].neighborhood)
				}
			}
			ok = ok && len(hoods) == 0
		}
	}
	most := 0
	for p, of := range in.processes {
		if cost += in.weightMachine * in.machines[in.first[p]].moveTo[at[p]]; at[p] != in.first[p] {
			cost += in.weightProcess * of.moveCost
			moves[of.service]++
			most = max(most, moves[of.service])
		}
	}
	return cost + in.weightService*int64(most), ok
}

// On small instances the cost is the challenge's at every step and the rules hold; no single step lowers the cost in the end; and
// it is never below the best of all assignments, and often equal to it.
func TestSmallInstances(t *testing.T) {
	best, lowered, all := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		last, ok := in.judge(in.first)
		require.True(t, ok)
		require.Equal(t, last, in.begin().cost())
		for most := 0; ; most++ {
			s, moves, err := in.lower(t.Context(), most) // the ledger takes every step
			require.NoError(t, err)
			require.LessOrEqual(t, moves, most)
			cost, ok := in.judge(s.at)
			require.True(t, ok, "a rule is broken at %v", s.at)
			require.Equal(t, cost, s.cost())
			require.LessOrEqual(t, cost, last)
			if last = cost; most > moves+2 {
				break
			}
		}
		if last < in.begin().cost() {
			lowered++
		}
		least, at := last, make([]int, len(in.processes))
		var try func(p int)
		try = func(p int) {
			if p < len(at) {
				for at[p] = range in.machines {
					try(p + 1)
				}
			} else if cost, ok := in.judge(at); ok {
				least = min(least, cost)
			}
		}
		try(0)
		if all++; least == last {
			best++
		}
	})
	t.Logf("%d of %d were lowered, %d are the best of all assignments", lowered, all, best)
	require.Greater(t, best, all/2)
	require.Greater(t, lowered, all/30)
}

// What is no instance is refused with the reason.
func TestReadsOnlyInstances(t *testing.T) {
	for name, c := range map[string][2]string{
		"empty":            {"", ""},
		"no number":        {"1 x", ""},
		"negative":         {"1 0 -1", ""},
		"unknown service":  {"1 0 1 1 0 0 9 9 0 1 0 0 1 7 1 1 0 1 1 1", "0"},
		"unknown machine":  {"1 0 1 1 0 0 9 9 0 1 0 0 1 0 1 1 0 1 1 1", "3"},
		"no assignment":    {"1 0 1 1 0 0 9 9 0 1 0 0 1 0 1 1 0 1 1 1", ""},
		"depends on none":  {"1 0 1 1 0 0 9 9 0 1 0 1 5 1 0 1 1 0 1 1 1", "0"},
		"unknown resource": {"1 0 1 1 0 0 9 9 0 1 0 0 1 0 1 1 1 0 4 1 1 1 1 1", "0"},
	} {
		_, err := read(strings.NewReader(c[0]), strings.NewReader(c[1]))
		require.ErrorIs(t, err, errInstance, name)
	}
	_, err := read(strings.NewReader("1 0 1 1 0 0 9 9 0 1 0 0 1 0 1 1 0 1 1 1"), strings.NewReader("0"))
	require.NoError(t, err)
	_, err = parse([]string{"-model", "m"}, &bytes.Buffer{})
	require.Error(t, err)
}
