package orbit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Extra is an amount of something that is none of the eight dimensions of [Resources]: of licences, addresses or huge pages, say. A node has it
// ([Node.Extras]), and a capsule takes it there ([Spec.Extras]). A ledger refuses a placement after which the node would have given more of a name than it has;
// a node without the name has 0. As for [Apart], what has left the node and still runs there ([Remains]) counts, except for a newcomer that waits for that. What is
// adopted, or is there when a node's amount falls, is a fact and refused by nothing ([State.Overcommitted]).
//
// What most capsules ask for belongs into Resources: scores, holds, nominations and bets know nothing of extras, no resize changes them, and nobody is
// evicted for them by a planner.
type Extra struct {
	// Name says what it is.
	Name string `json:"name"`
	// Amount is how much of it a node has, or a capsule takes: 1 at least for a capsule, 549,755,813,887 at most (127 where an int has 32 bits).
	Amount int64 `json:"amount"`
}

// mostExtra is the largest amount: what 16,777,216 capsules take of it is an int.
const mostExtra = math.MaxInt >> 24

// extraFaults says what is wrong with extras, of which there are this many at least.
func extraFaults(extras []Extra, least int64) (out []string) {
	if len(extras) > maxRules {
		return []string{fmt.Sprintf("%d extras; there can be %d", len(extras), maxRules)}
	}
	names := map[string]bool{}
	for _, x := range extras {
		if x.Name == "" || names[x.Name] || x.Amount < least || x.Amount > mostExtra {
			out = append(out, fmt.Sprintf("extra %.100q with amount %d; each needs a name of its own, and an amount from %d to %d", x.Name, x.Amount, least, mostExtra))
		}
		names[x.Name] = true
	}
	return out
}

// sortedExtras returns a copy in the order of the names.
func sortedExtras(extras []Extra) []Extra {
	extras = slices.Clone(extras)
	slices.SortStableFunc(extras, func(a, b Extra) int { return cmp.Compare(a.Name, b.Name) })
	return extras
}

// amountOf returns how much there is of a name.
func amountOf(extras []Extra, name string) int64 {
	for i := range extras {
		if extras[i].Name == name {
			return extras[i].Amount
		}
	}
	return 0
}

// extraGroup is the group under which an extra is counted, by nodes. No group has such a name, which is not valid UTF-8.
func extraGroup(name string) string { return "\xff" + name }

// extraFault judges whether the node has enough of an extra.
func (a *arrival) extraFault(at companyCounts, x *Extra) *Rejection {
	taken := at.in(companyDomain{extraGroup(x.Name), NodeKey, string(a.node.ID)})
	free := amountOf(a.node.Extras, x.Name) - int64(taken[membersPlaced]) - int64(taken[membersStopping])
	if a.counted {
		free += x.Amount
	}
	for _, rest := range a.awaits {
		if rest.Node == a.node.ID {
			free += amountOf(rest.Spec.Extras, x.Name)
		}
	}
	if x.Amount <= free {
		return nil
	}
	return &Rejection{Node: a.node.ID, Dimension: x.Name, Want: x.Amount, Free: max(0, free), advice: "lack " + quoteWord(x.Name),
		Reason: a.reason("node %q has too little of %q", a.node.ID, x.Name)}
}
