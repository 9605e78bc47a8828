package main

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/orbitsched/orbit"
)

// account is a recount of the ledger's history that does not use the ledger's own counts and rules: the nodes, the node
// of each replica, and the rules that did not hold. It is slow and simple on purpose.
type account struct {
	ledger orbit.Ledger
	sets   map[string]*set
	read   orbit.Revision
	nodes  map[orbit.NodeID]*orbit.Node
	specs  map[orbit.CapsuleID]*orbit.Spec
	on     map[orbit.CapsuleID]orbit.NodeID
	// The number of commits that were judged, of pairs that were compared in all of them, and of replicas that were
	// checked when they had just been placed.
	commits, pairs, arrivals int
	// How often a rule did not hold, and the first few cases.
	broken int
	cases  []string
	// The largest skew by which a replica has been placed.
	skew int
}

func newAccount(ledger orbit.Ledger, sets []*set) *account {
	a := &account{ledger: ledger, sets: map[string]*set{}, nodes: map[orbit.NodeID]*orbit.Node{}, specs: map[orbit.CapsuleID]*orbit.Spec{},
		on: map[orbit.CapsuleID]orbit.NodeID{}}
	for _, s := range sets {
		a.sets[s.name] = s
	}
	return a
}

// catchUp reads what has been committed since the last call, commit by commit.
func (a *account) catchUp() {
	changes, err := a.ledger.Changes(context.Background(), a.read)
	if err != nil {
		log.Fatal(err)
	}
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		a.commit(changes[:n])
		a.read = changes[0].Revision
		changes = changes[n:]
	}
}

// commit enters the changes of one commit, and judges the state after it.
func (a *account) commit(changes []orbit.Change) {
	before := map[orbit.CapsuleID]orbit.NodeID{}
	var arrived []orbit.CapsuleID
	for _, c := range changes {
		switch do := c.Do.(type) {
		case orbit.PutNode:
			n := do.Node
			a.nodes[n.ID] = &n
		case orbit.RemoveNode:
			delete(a.nodes, do.Node)
		case orbit.Submit:
			for _, id := range do.IDs {
				a.specs[id] = a.sets[do.Spec.Module].spec
			}
		case orbit.Evict:
			before[do.Capsule] = a.on[do.Capsule]
			delete(a.on, do.Capsule)
		case orbit.Release:
			before[do.Capsule] = a.on[do.Capsule]
			delete(a.on, do.Capsule)
		case orbit.Place:
			arrived = append(arrived, do.Capsule)
			a.on[do.Capsule] = do.Node
		default:
			log.Fatalf("%T in the history", do)
		}
	}
	a.commits++
	a.judgeApart()
	for _, id := range arrived {
		a.arrivals++
		for _, rule := range a.specs[id].Even {
			a.judgeEven(id, rule, before)
		}
	}
}

// member is a replica and the number of its domain.
type member struct {
	id     orbit.CapsuleID
	domain int
}

// judgeApart compares each replica that has a rule Apart with each member of the group from which the replica must be
// apart.
func (a *account) judgeApart() {
	for _, s := range a.sets {
		for _, rule := range s.spec.Apart {
			numbers := map[string]int{}
			have := a.placed(func(spec *orbit.Spec) bool { return slices.Contains(spec.Apart, rule) }, rule.Level, numbers)
			members := a.placed(func(spec *orbit.Spec) bool { return spec.IsIn(rule.Group) }, rule.Level, numbers)
			for _, one := range have {
				for _, other := range members {
					if one.domain == other.domain && one.id != other.id {
						a.breaks("%s and %s are both in %s %s", one.id, other.id, rule.Level, domain(a.nodes[a.on[one.id]], rule.Level))
					}
				}
			}
			a.pairs += len(have) * len(members)
		}
	}
}

// placed lists the placed replicas whose spec is of the kind, with the numbers of their domains.
func (a *account) placed(kind func(*orbit.Spec) bool, level string, numbers map[string]int) (out []member) {
	of := map[*orbit.Spec]bool{}
	for _, s := range a.sets {
		of[s.spec] = kind(s.spec)
	}
	for id, node := range a.on {
		if !of[a.specs[id]] {
			continue
		}
		name := domain(a.nodes[node], level)
		if _, known := numbers[name]; !known {
			numbers[name] = len(numbers)
		}
		out = append(out, member{id, numbers[name]})
	}
	return out
}

// judgeEven judges a replica that has just been placed by a rule Even. Before has the former nodes of the capsules that
// have left a node by the same commit: if the replica only moves within its domain, the domain has no more members than
// before, and nothing is broken.
func (a *account) judgeEven(id orbit.CapsuleID, rule orbit.Even, before map[orbit.CapsuleID]orbit.NodeID) {
	name := domain(a.nodes[a.on[id]], rule.Level)
	if !eligible(a.nodes[a.on[id]], a.specs[id], rule) {
		a.breaks("%s is in %s %q, which is not eligible", id, rule.Level, name)
		return
	}
	counts := a.counts(a.specs[id], rule)
	skew := counts[name] - a.least(counts, rule)
	from := before[id]
	if skew > rule.MaxSkew && (from == "" || domain(a.nodes[from], rule.Level) != name) {
		a.breaks("%s is in %s %s: %v", id, rule.Level, name, counts)
	}
	a.skew = max(a.skew, skew)
}

// counts counts the members of the rule's group in each domain that is eligible for a spec.
func (a *account) counts(spec *orbit.Spec, rule orbit.Even) map[string]int {
	counts := map[string]int{}
	for _, n := range a.nodes {
		if eligible(n, spec, rule) {
			counts[domain(n, rule.Level)] = 0
		}
	}
	for id, node := range a.on {
		if a.specs[id].IsIn(rule.Group) {
			if name := domain(a.nodes[node], rule.Level); hasKey(counts, name) {
				counts[name]++
			}
		}
	}
	return counts
}

// least returns how many members the emptiest domain has; 0 if there are fewer domains than MinDomains.
func (a *account) least(counts map[string]int, rule orbit.Even) int {
	least := -1
	for _, n := range counts {
		if least < 0 || n < least {
			least = n
		}
	}
	if len(counts) < rule.MinDomains {
		return 0
	}
	return max(least, 0)
}

// spread returns how many more members the fullest domain of a set has than the emptiest.
func (a *account) spread(s *set) int {
	counts, most := a.counts(s.spec, s.spec.Even[0]), 0
	for _, n := range counts {
		most = max(most, n)
	}
	return most - a.least(counts, s.spec.Even[0])
}

// breaks records a rule that does not hold.
func (a *account) breaks(format string, args ...any) {
	if a.broken++; len(a.cases) < 8 {
		a.cases = append(a.cases, fmt.Sprintf("commit %d: ", a.commits)+fmt.Sprintf(format, args...))
	}
}

// domain returns the domain of a node.
func domain(n *orbit.Node, level string) string {
	if level == orbit.NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// eligible reports whether the node makes its domain one of those over which the rule is even for the spec.
func eligible(n *orbit.Node, spec *orbit.Spec, rule orbit.Even) bool {
	name := domain(n, rule.Level)
	if len(rule.Domains) > 0 {
		return n.State != orbit.Lost && slices.Contains(rule.Domains, name)
	}
	for _, p := range spec.Require {
		if !p.On(n) {
			return false
		}
	}
	return n.State != orbit.Lost && name != ""
}

func hasKey(m map[string]int, key string) bool {
	_, ok := m[key]
	return ok
}
