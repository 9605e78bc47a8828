package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// Whoever wins: no rule is broken at any commit, at no moment does something wait that would be taken somewhere, what is uneven after the zone has come
// back is repaired, and the recount ends as the ledger does.
func TestEveryMoment(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	for seed := range uint64(3) {
		var out bytes.Buffer
		w := open(400, seed, &out)
		w.play()
		require.True(t, w.sumUp(), out.String())
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		require.Regexp(t, `^rules broken 0, skew at most [123]$`, string(lines[len(lines)-1]))
		require.Len(t, w.moments, 6)
		for _, m := range w.moments {
			require.NoError(t, m.state.Verify(), m.title)
			for name, r := range m.rows {
				if m.title != "b is back" { // nobody has planned since
					unplaced(t, m.state, name)
				}
				assert.Equal(t, waits(m.title, name), r.waiting, "%s: %s", m.title, name)
				assert.Equal(t, uneven(m.title, name), r.skewed > 0, "%s: %s", m.title, name)
				if r.skewed == 0 {
					assert.LessOrEqual(t, r.skew, w.account.sets[name].spec.Even[0].MaxSkew, "%s: %s", m.title, name)
				}
			}
		}
		assert.Equal(t, map[string]int{"a": 6, "c": 6}, w.moments[1].rows["backup"].zones)
		assert.Positive(t, w.moves)
		for id, node := range w.account.on {
			require.Equal(t, node, w.state().Capsule(id).Node)
		}
		require.Len(t, w.account.on, w.state().CapsuleCount())
	}
}

// waits says how many replicas of a set wait at a moment: a db without its three zones, and queue behind a small zone, which takes 2 of its 18 more.
func waits(title, name string) int {
	switch {
	case name == "db" && (title == "b fails" || title == "b is back"):
		return 4
	case name == "queue" && title == "d, small":
		return 16
	}
	return 0
}

// uneven says whether a set is uneven at a moment.
func uneven(title, name string) bool {
	return title == "b is back" || title == "b fails" && name == "db" || title == "d, small" && name == "queue"
}

// unplaced requires that nothing of a set waits that the ledger would place on some node.
func unplaced(t *testing.T, s *orbit.State, name string) {
	for _, c := range s.Pending() {
		if c.Spec.Module != name {
			continue
		}
		for n := range s.Nodes() {
			require.Error(t, s.Check(onto(s, c.ID, n.Node.ID)), "%s waits, and %s would take it", c.ID, n.Node.ID)
		}
		return // all of a set have one spec
	}
}

// The recount finds broken rules: it reads a history that no ledger would have written.
func TestRecountFinds(t *testing.T) {
	sets := makeSets(400)
	at := map[string]*set{}
	for _, s := range sets {
		at[s.name] = s
	}
	for name, broken := range map[string]struct {
		first, second orbit.NodeID
		as, other     string
	}{
		"two on one node":      {"a-00-000", "a-00-000", "api", "api"},
		"two in one rack":      {"a-00-000", "a-00-001", "db", "db"},
		"a db comes to backup": {"a-00-000", "a-00-001", "backup", "db"},
		"one port":             {"a-00-000", "a-00-000", "proxy", "gate"},
		"two in one zone":      {"a-00-000", "a-01-000", "web", "web"},
		"a zone not declared":  {"a-00-000", "d-00-000", "web", "web"},
		"two in a rack":        {"a-00-000", "a-00-001", "search", "search"},
		"nothing":              {"a-00-000", "b-00-000", "web", "web"},
	} {
		a := newAccount(nil, sets)
		var join []orbit.Change
		for _, s := range []site{{"a", "a-00"}, {"a", "a-01"}, {"b", "b-00"}, {"c", "c-00"}, {"d", "d-00"}} {
			for i := range 2 {
				join = append(join, orbit.Change{Do: orbit.PutNode{Node: s.node(i)}})
			}
		}
		a.commit(join)
		a.commit([]orbit.Change{
			{Do: orbit.Submit{IDs: []orbit.CapsuleID{"1"}, Spec: at[broken.as].spec}},
			{Do: orbit.Submit{IDs: []orbit.CapsuleID{"2"}, Spec: at[broken.other].spec}},
		})
		a.commit([]orbit.Change{{Do: orbit.Place{Capsule: "1", Node: broken.first}}})
		assert.Zero(t, a.broken, "%s: %v", name, a.cases)
		a.commit([]orbit.Change{{Do: orbit.Place{Capsule: "2", Node: broken.second}}})
		assert.Equal(t, name != "nothing", a.broken > 0, "%s: %v", name, a.cases)
	}
}
