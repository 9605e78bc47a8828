package shard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// roster is the schedulers that live at one revision: those with a term in the ledger, or a fixed list. It goes by
// what the ledger says and by no clock, so every dispatcher that sees the same revision sees the same roster.
type roster struct {
	// Sorted, each once.
	names []string
	// Position in names.
	at map[string]int
	// When each began its term; 0 without leases.
	since []orbit.Revision
	// That it has not ended: what an assignment to each bets on; empty without leases.
	bets [][]orbit.Precondition
}

// readRoster reads the leases in a state. It looks at the leases of schedulers and at nothing else.
func readRoster(state *orbit.State, leases *lease.Keeper, fixed []string) roster {
	r := roster{at: map[string]int{}}
	if leases == nil {
		r.names = slices.Compact(slices.Sorted(slices.Values(fixed)))
		r.since = make([]orbit.Revision, len(r.names))
		r.bets = make([][]orbit.Precondition, len(r.names))
	} else {
		r.names = schedulersIn(state, leases)
		for _, name := range r.names {
			term, _ := leases.In(state, name)
			r.since = append(r.since, term.Epoch)
			r.bets = append(r.bets, []orbit.Precondition{orbit.MarkAt{Key: leases.Key(name), Revision: term.Epoch}})
		}
	}
	for i, name := range r.names {
		r.at[name] = i
	}
	return r
}

// schedulersIn returns who has a term, sorted.
func schedulersIn(state *orbit.State, leases *lease.Keeper) (names []string) {
	prefix := leases.Key("")
	for key := range state.Marks(prefix) {
		name, err := url.PathUnescape(key[len(prefix):])
		if err != nil || name == "" || leases.Key(name) != key {
			continue
		}
		if _, live := leases.In(state, name); live {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lives reports whether a scheduler does.
func (r *roster) lives(name string) bool {
	_, ok := r.at[name]
	return ok
}

// failed returns the positions of living schedulers that have failed a unit, in order. What a scheduler said in an
// earlier term does not count: it has been given other nodes since.
func (r *roster) failed(f failures) (out []int) {
	for _, one := range f.list {
		if i, lives := r.at[one.Scheduler]; lives && one.View >= r.since[i] {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

// ofSchedulers refuses the leases that nodes hold unless told otherwise: each node would be taken for a scheduler.
func ofSchedulers(l *lease.Keeper) error {
	if l != nil && (l.Prefix == "" || l.Prefix == "lease/") {
		return fmt.Errorf("shard: %w: the Leases have the Prefix of nodes, %q; make some with Prefix shard.LeasePrefix, for schedulers alone",
			orbit.ErrInvalid, cmp.Or(l.Prefix, "lease/"))
	}
	return nil
}
