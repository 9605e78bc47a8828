package shard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// roster lists the schedulers that are alive at one revision: the holders of a term in the ledger, or a fixed list. It
// is read from the ledger and not from a clock, so all dispatchers that read the same revision get the same roster.
type roster struct {
	// names are sorted, each once.
	names []string
	// at is the position of each name in names.
	at map[string]int
	// since is the revision at which each scheduler began its term; 0 without leases.
	since []orbit.Revision
	// bets has, for each scheduler, the bets of an assignment to it: that the scheduler's term has not ended. Without
	// leases there are none.
	bets [][]orbit.Precondition
}

// readRoster reads the roster from a state. It reads the marks of the schedulers' leases and no others.
func readRoster(state *orbit.State, leases *lease.Keeper, fixed []string) roster {
	r := roster{at: map[string]int{}}
	if leases == nil {
		r.names = sortedNames(fixed)
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

// sortedNames returns the names sorted, each once.
func sortedNames(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// schedulersIn returns the names of the schedulers that have a term, sorted.
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

// lives reports whether a scheduler is in the roster.
func (r *roster) lives(name string) bool {
	_, ok := r.at[name]
	return ok
}

// failed returns the positions of the schedulers in the roster that have failed to place a unit, sorted. A failure from
// an earlier term of a scheduler does not count, because the scheduler may have other nodes now.
func (r *roster) failed(f failures) (out []int) {
	for _, one := range f.list {
		if i, lives := r.at[one.Scheduler]; lives && one.View >= r.since[i] {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

// ofSchedulers returns an error if the keeper has the default prefix. Nodes have their leases under the default prefix,
// so each node would count as a scheduler.
func ofSchedulers(l *lease.Keeper) error {
	if l != nil && (l.Prefix == "" || l.Prefix == "lease/") {
		return fmt.Errorf("shard: %w: the Leases have the Prefix of nodes, %q; make some with Prefix shard.LeasePrefix, for schedulers alone",
			orbit.ErrInvalid, cmp.Or(l.Prefix, "lease/"))
	}
	return nil
}
