package ledgertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// This file checks the rules of company: which capsules are kept apart, and how evenly groups are spread.

// in describes a node with room for all capsules, in a zone and a rack. If one of these is empty, the node lacks that
// label.
func in(zone, rack string, id orbit.NodeID) orbit.PutNode {
	n := node(id, 99)
	n.Node.Labels = map[string]string{}
	for key, value := range map[string]string{"zone": zone, "rack": rack} {
		if value != "" {
			n.Node.Labels[key] = value
		}
	}
	return n
}

// off describes the same node, with an agent that confirms.
func off(zone, rack string, id orbit.NodeID) orbit.PutNode {
	n := in(zone, rack, id)
	n.Node.Confirms = true
	return n
}

// away returns a spec of a member of a group that has to be apart from the group from at a level.
func away(group, from, level string) *orbit.Spec {
	spec := grouped(group)
	spec.Apart = []orbit.Apart{{Group: from, Level: level}}
	return spec
}

// level returns a spec of a member of group "g" with an Even rule over zones, to which the changes are applied.
func level(change ...func(e *orbit.Even)) *orbit.Spec {
	spec := movable(grouped("g"))
	e := orbit.Even{Group: "g", Level: "zone"}
	for _, c := range change {
		c(&e)
	}
	spec.Even = []orbit.Even{e}
	return spec
}

// among returns a change that sets the Domains of a rule.
func among(domains ...string) func(*orbit.Even) {
	return func(e *orbit.Even) { e.Domains = domains }
}

// zones describes a node in each zone: "na" in zone "a", in rack "ra".
func (t *trial) zones(names ...string) {
	for _, z := range names {
		t.commits(in(z, "r"+z, orbit.NodeID("n"+z)))
	}
}

// spread submits one capsule for each named zone, "x0" for the first one and so on, and places each of them there in a
// commit of its own.
func (t *trial) spread(spec *orbit.Spec, zones ...string) {
	for i, z := range zones {
		id := orbit.CapsuleID(fmt.Sprint("x", i))
		t.commits(submit(spec, id), place(id, orbit.NodeID("n"+z)))
	}
}

// skewed requires that State.Skewed shows exactly these domains, each with its number of members and the fewest of any
// domain.
func (t *trial) skewed(want ...string) {
	var got []string
	for s := range t.now().Skewed() {
		got = append(got, fmt.Sprintf("%s: %d, fewest %d", s.Domain, s.Members, s.Fewest))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Failf("State.Skewed shows [%s]; it must be [%s]", strings.Join(got, "; "), strings.Join(want, "; "))
	}
}

// names requires that a rejection names the capsule, the node, the group and the domain, how many members there would
// be, and how many are allowed.
func (t *trial) names(r orbit.Rejection, c orbit.CapsuleID, n orbit.NodeID, domain string, want, free int64) {
	if r.Group != "g" || r.Domain != domain || r.Want != want || r.Free != free || r.Capsule != c || r.Node != n {
		t.Failf("it is refused as %q: capsule %q, node %q, group %q, domain %q, want %d, free %d; it must be %q, %q, \"g\", %q, %d, %d",
			r.Reason, r.Capsule, r.Node, r.Group, r.Domain, r.Want, r.Free, c, n, domain, want, free)
	}
}

// apartLines has cases of rules that keep capsules apart.
var apartLines = []line{
	{"by node: at most one of the group on each", func(t *trial) {
		t.commits(in("a", "r", "n"), in("a", "r", "m"), submit(away("g", "g", orbit.NodeKey), "x", "y"), place("x", "n"))
		t.mistakes(place("y", "n"))
		t.commits(place("y", "m"))
	}},
	{"by rack: at most one in each", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r1", "m"), in("a", "r2", "o"), submit(away("g", "g", "rack"), "x", "y"), place("x", "n"))
		t.mistakes(place("y", "m"))
		t.commits(place("y", "o"))
	}},
	{"what runs vetoes what comes, though that has no rule", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r1", "m"), in("a", "r2", "o"), submit(away("db", "web", "rack"), "x"), submit(grouped("web"), "y"), place("x", "n"))
		t.mistakes(place("y", "n"))
		t.mistakes(place("y", "m"))
		t.commits(place("y", "o"))
	}},
	{"what comes is vetoed by what runs, though that has no rule", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r1", "m"), in("a", "r2", "o"), submit(away("db", "web", "rack"), "x"), submit(grouped("web"), "y"), place("y", "n"))
		t.mistakes(place("x", "n"))
		t.mistakes(place("x", "m"))
		t.commits(place("x", "o"))
	}},
	{"those with a rule about others are not apart from each other, nor are the others", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r2", "m"), submit(away("db", "web", "rack"), "x1", "x2"), submit(grouped("web"), "y1", "y2"))
		t.commits(place("x1", "n"), place("x2", "n"))
		t.commits(place("y1", "m"), place("y2", "m"))
	}},
	{"each of the groups that a capsule is in counts: a port of a node is one's", func(t *trial) {
		port := away("web", "port/80", orbit.NodeKey)
		port.Groups = []string{"port/80"}
		other := grouped("api")
		other.Groups = []string{"port/80"}
		t.commits(in("a", "r", "n"), in("a", "r", "m"), submit(port, "x"), submit(other, "y"), submit(grouped("web"), "w"), place("x", "n"))
		t.mistakes(place("y", "n"))
		t.commits(place("w", "n"), place("y", "m"))
	}},
	{"a node without the label is no domain: the rule holds there for nobody", func(t *trial) {
		t.commits(in("a", "r", "n"), in("a", "", "m"), submit(away("g", "g", "rack"), "x", "y", "z"), place("x", "n"))
		t.mistakes(place("y", "n"))
		t.commits(place("y", "m"))
		t.commits(place("z", "m"))
	}},
	{"a rule that asks for the label keeps those who have it off a node without, and nobody else", func(t *trial) {
		strict := away("db", "web", "rack")
		strict.Apart[0].Labelled = true
		t.commits(in("a", "r", "n"), in("a", "", "m"), submit(strict, "x"), submit(grouped("web"), "y"), submit(away("db", "web", "rack"), "z"))
		t.mistakes(place("x", "m"))
		t.commits(place("x", "n"), place("y", "m"))
		t.mistakes(place("z", "n"), place("y", "n"))
		t.commits(place("z", "m"))
	}},
	{"of two rules by one level the strict one holds", func(t *trial) {
		twice := away("db", "web", "rack")
		twice.Apart = append(twice.Apart, orbit.Apart{Group: "web", Level: "rack", Labelled: true})
		t.commits(in("a", "r", "n"), in("a", "", "m"), submit(twice, "x"), submit(grouped("web"), "y"))
		t.mistakes(place("x", "m"))
		t.commits(place("x", "n"))
		t.mistakes(place("y", "n"))
		t.commits(cancel("x"))
		t.commits(place("y", "n"))
	}},
	{"who waits keeps nobody away, and who has been released neither", func(t *trial) {
		t.commits(in("a", "r", "n"), submit(away("g", "g", "rack"), "x", "y", "z"), place("x", "n"))
		t.commits(cancel("x"), place("y", "n")) // in one proposal, too
		t.commits(stopped("y"))
		t.commits(place("z", "n"))
	}},
	{"several of one proposal are judged together", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r1", "m"), in("a", "r2", "o"), submit(away("g", "g", "rack"), "x", "y"), submit(away("db", "web", "rack"), "d"), submit(grouped("web"), "w"))
		t.mistakes(place("x", "n"), place("y", "m"))
		t.mistakes(place("d", "n"), place("w", "m"))
		t.mistakes(place("w", "n"), place("d", "m"))
		t.commits(place("x", "n"), place("y", "o"), place("d", "m"), place("w", "o"))
	}},
	{"what has left and still runs keeps away who does not wait for it", func(t *trial) {
		t.commits(off("a", "r", "n"), submit(away("g", "g", orbit.NodeKey), "x", "y"), place("x", "n"))
		t.commits(t.begins("x"))
		t.commits(cancel("x"))
		t.mistakes(place("y", "n")) // there is room for both
		t.commits(placeAfter("y", "n"))
		t.waits("y", true)
		t.mistakes(t.begins("y"))
		t.commits(t.stops("x"))
		t.commits(t.begins("y"))
	}},
	{"who waits on a node waits for nothing on others of the rack", func(t *trial) {
		t.commits(off("a", "r", "n"), off("a", "r", "m"), submit(away("g", "g", "rack"), "x", "y"), place("x", "n"))
		t.commits(t.begins("x"))
		t.commits(cancel("x"))
		t.mistakes(placeAfter("y", "m"))
		t.commits(placeAfter("y", "n"))
	}},
	{"what had the rule and still runs keeps away who has none", func(t *trial) {
		t.commits(off("a", "r", "n"), submit(away("db", "web", "rack"), "x"), submit(grouped("web"), "y"), place("x", "n"))
		t.commits(t.begins("x"))
		t.commits(cancel("x"))
		t.mistakes(place("y", "n"))
		t.commits(placeAfter("y", "n"))
	}},
	{"who is moved within the rack waits for itself, and is not kept away by itself", func(t *trial) {
		t.commits(off("a", "r", "n"), off("a", "r", "m"), submit(movable(away("g", "g", "rack")), "x"), place("x", "n"))
		t.commits(t.begins("x"))
		t.commits(t.move("x", "m")...)
		t.mistakes(t.begins("x"))
		t.commits(t.stops("x"))
		t.commits(t.begins("x"))
	}},
	{"a victim that keeps its newcomer away is not spared, though both have room, also on another node", func(t *trial) {
		urgent := away("db", "g", "rack")
		urgent.Priority = 9
		t.commits(in("a", "r1", "n"), in("a", "r1", "m"), in("a", "r2", "o"), submit(grouped("g"), "v", "w"), submit(urgent, "a"), place("v", "n"), place("w", "o"))
		t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "a"), t.evictFor("w", "a"), place("a", "m"))
		t.isOn("w", "o")
	}},
	{"the rule leaves with the last that has it", func(t *trial) {
		t.commits(in("a", "r", "n"), submit(away("db", "g", "rack"), "x"), submit(grouped("g"), "y", "z"), place("x", "n"))
		t.mistakes(place("y", "n"))
		t.commits(cancel("x"))
		t.commits(place("y", "n"))
		t.commits(submit(away("db", "g", "rack"), "x")) // y came while no capsule had the rule, and counts all the same
		t.mistakes(place("x", "n"))
		t.commits(place("z", "n"))
	}},
}

func checkApart(t *trial) { t.all(apartLines) }

// near returns a spec of a member of a group that has to be near groups by levels: group, level, group, level, ...
func near(group string, of ...string) *orbit.Spec {
	spec := movable(grouped(group))
	for i := 0; i < len(of); i += 2 {
		spec.Nears = append(spec.Nears, orbit.Near{Group: of[i], Level: of[i+1]})
	}
	return spec
}

// nearLines are the statements about Near.
var nearLines = []line{
	{"only where a member is, and a node without the label is nowhere", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r2", "m"), in("a", "", "o"), submit(near("web", "db", "rack"), "x", "y"), submit(grouped("db"), "d", "e"))
		t.mistakes(place("x", "n"))
		t.commits(place("d", "n"), place("e", "o"))
		t.mistakes(place("x", "m"))
		t.mistakes(place("x", "o"))
		t.commits(place("x", "n"))
		t.commits(cancel("d")) // x stays
		t.isOn("x", "n")
		t.mistakes(place("y", "n"))
	}},
	{"of a single node, if the level is the node", func(t *trial) {
		t.commits(in("a", "r", "n"), in("a", "r", "m"), submit(near("web", "db", orbit.NodeKey), "x"), submit(grouped("db"), "d"), place("d", "n"))
		t.mistakes(place("x", "m"))
		t.commits(place("x", "n"))
	}},
	{"the same by Near", func(t *trial) {
		one := grouped("web")
		one.Near = orbit.Near{Group: "db", Level: "rack"}
		t.commits(in("a", "r1", "n"), in("a", "r2", "m"), submit(one, "x"), submit(grouped("db"), "d"), place("d", "n"))
		t.mistakes(place("x", "m"))
		t.commits(place("x", "n"))
	}},
	{"several must all hold", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r2", "m"), in("b", "r3", "o"), submit(near("web", "db", "rack", "cache", "zone"), "x"), submit(grouped("db"), "d"), submit(grouped("cache"), "c"))
		t.commits(place("d", "o"), place("c", "n"))
		t.mistakes(place("x", "o"))
		t.mistakes(place("x", "n"))
		t.commits(submit(grouped("db"), "d2"), place("d2", "m"))
		t.commits(place("x", "m"))
	}},
	{"the first member of its own group goes anywhere, and the others follow, also once it has left alone", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r1", "n2"), in("a", "r2", "m"), submit(near("g", "g", "rack"), "x", "y", "z"))
		t.commits(place("x", "n"))
		t.mistakes(place("y", "m"))
		t.commits(t.move("x", "m")...) // nobody else is anywhere
		t.mistakes(place("y", "n"))
		t.commits(place("y", "m"))
		t.mistakes(t.move("x", "n")...)
		t.commits(cancel("x"), cancel("y"))
		t.commits(place("z", "n2"))
	}},
	{"a member on a node without the label is nowhere: the first of the others goes anywhere", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "", "o"), submit(grouped("g"), "a"), place("a", "o"), submit(near("g", "g", "rack"), "x"), place("x", "n"))
	}},
	{"those of one proposal are company for each other, and leave nobody alone", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r1", "m"), in("a", "r2", "o"), submit(near("g", "g", "rack"), "x", "y"), submit(near("web", "db", "rack"), "w"), submit(near("db", "web", "rack"), "d"))
		t.mistakes(place("x", "n"), place("y", "o"))
		t.mistakes(place("w", "n"), place("d", "o"))
		t.commits(place("x", "n"), place("y", "m"), place("w", "n"), place("d", "m"))
		t.mistakes(append(t.move("w", "o"), cancel("x"))...)
	}},
	{"what has left and still runs is no company", func(t *trial) {
		t.commits(off("a", "r", "n"), submit(grouped("db"), "d"), submit(near("web", "db", "rack"), "x"), place("d", "n"))
		t.commits(t.begins("d"))
		t.commits(cancel("d"))
		t.remain("n", "d")
		t.mistakes(place("x", "n"))
		t.mistakes(placeAfter("x", "n"))
	}},
	{"it is judged by the labels after the proposal", func(t *trial) {
		t.commits(in("a", "r1", "n"), in("a", "r2", "m"), submit(grouped("db"), "d"), submit(near("web", "db", "rack"), "x"), place("d", "n"))
		t.mistakes(in("a", "r3", "n"), in("a", "r1", "m"), place("x", "m"))
		t.commits(in("a", "r2", "n"), place("x", "m"))
	}},
	{"a group and a level are needed", func(t *trial) {
		for _, bad := range []orbit.Near{{}, {Group: "g"}, {Level: "rack"}} {
			spec := grouped("g")
			spec.Nears = []orbit.Near{bad}
			t.invalid(submit(spec, "bad"))
		}
	}},
}

func checkNear(t *trial) { t.all(nearLines) }

// checkCompanyReceipts checks the receipts of rejections, and whether these are conflicts or infeasible.
func checkCompanyReceipts(t *trial) {
	t.zones("a", "b", "c")
	t.commits(in("", "r", "bare"), submit(level(), "x", "y", "z"), submit(level(among("a", "b")), "d"), place("x", "na"))
	view := t.view()
	t.names(t.mistakes(place("y", "na")), "y", "na", "a", 2, 1)
	t.names(t.mistakes(place("y", "bare")), "y", "bare", "", 0, 0)
	t.names(t.mistakes(place("d", "nc")), "d", "nc", "c", 0, 0)
	r := t.mistakes(mark("k", "v"), place("y", "nb"), place("z", "nb"))
	if t.names(r, r.Capsule, "nb", "b", 2, 1); r.Do != 1 && r.Do != 2 || r.At != view {
		t.Failf("commitment %d is blamed, at revision %d; it must be one of the two places in one domain, at %d", r.Do, r.At, view)
	}
	t.commits(place("y", "nb"))
	taken := t.view()
	r = t.loses(view, place("z", "nb")) // the rule allowed this placement at the view
	if t.names(r, "z", "nb", "b", 2, 1); r.At != taken || r.TakenAt != taken {
		t.Failf("the conflict is at revision %d with a change at %d; it must be %d", r.At, r.TakenAt, taken)
	}
	t.admits(planned(view, place("z", "nc"))) // another domain has not changed, and still has the fewest
	t.clear()

	t.commits(in("a", "r1", "n"), in("a", "r1", "m"), in("a", "r2", "o"), submit(away("db", "g", "rack"), "x", "x2"), submit(grouped("g"), "y", "y2", "y3"))
	view = t.view()
	t.commits(place("x", "n"))
	t.names(t.mistakes(place("y", "m")), "y", "m", "r1", 1, 0)
	t.names(t.loses(view, place("y", "m")), "y", "m", "r1", 1, 0)
	t.admits(planned(view, place("y", "o"), place("y2", "o"))) // in another domain nothing has changed
	t.names(t.mistakes(place("x2", "o")), "x2", "o", "r2", 2, 0)
	view = t.view()
	t.commits(in("a", "r1", "o2"))
	t.commits(in("a", "r2", "n")) // a relabelled node takes its rule along
	t.names(t.loses(view, place("y3", "o")), "y3", "o", "r2", 1, 0)
	t.commits(place("y3", "m"))
}

// checkCompanyFacts adopts capsules and relabels nodes against the rules. Both are facts and not refused. Later
// placements are judged with them.
func checkCompanyFacts(t *trial) {
	t.zones("a", "b")
	t.commits(in("a", "ra", "na2"), submit(level(), "y"), submit(away("g", "g", "rack"), "p", "q"), place("p", "na"))
	t.commits(adopt("f1", level(), "na"), adopt("f2", level(), "na2"), adopt("f3", away("g", "g", "rack"), "na"))
	t.skewed("a: 4, fewest 0")
	t.mistakes(place("q", "na2"))
	t.mistakes(place("y", "nb"), place("q", "nb"))
	t.commits(adopt("y", level(), "na2")) // it has been waiting, and is found running
	t.skewed("a: 5, fewest 0")
	t.commits(in("a", "ra", "nb")) // zone b has no node any more
	t.skewed()
	t.commits(in("b", "rb", "nb"))
	t.commits(t.move("f1", "nb")...)
	t.skewed("a: 4, fewest 1")
	t.mistakes(t.move("f2", "na")...) // f3 and p are apart from all in the rack
	t.clear()

	spread := away("g", "g", "rack")
	t.commits(in("a", "r1", "n"), in("a", "r2", "m"), in("a", "r3", "o"), submit(spread, "x", "y", "z"), place("x", "n"), place("y", "m"))
	t.commits(in("a", "r1", "m"))
	t.isOn("x", "n")
	t.isOn("y", "m")
	t.mistakes(place("z", "m"))
	t.mistakes(in("a", "r1", "o"), place("z", "o")) // the placement is judged by the node's new labels
	t.commits(in("a", "r4", "m"), place("z", "o"))
	t.commits(cancel("z"))
	t.mistakes(in("a", "r4", "o"), submit(spread, "z2"), place("z2", "o"))
	bad := []orbit.Apart{{}, {Group: "g"}, {Level: "rack"}}
	for _, rule := range bad {
		spec := grouped("g")
		spec.Apart = []orbit.Apart{rule}
		t.invalid(submit(spec, "bad"))
	}
	for _, change := range []func(e *orbit.Even){
		func(e *orbit.Even) { e.Group = "" }, func(e *orbit.Even) { e.Level = "" }, func(e *orbit.Even) { e.MaxSkew = -1 }, func(e *orbit.Even) { e.MinDomains = -1 },
		func(e *orbit.Even) { e.MinDomains = 1<<24 + 1 }, among("a", ""),
	} {
		t.invalid(submit(level(change), "bad"))
	}
}

// checkCompanyWishes places capsules against their preferences, which no ledger enforces, and checks that the ledger
// keeps these preferences with the capsule.
func checkCompanyWishes(t *trial) {
	t.zones("a", "b")
	wishes := []orbit.Company{{Group: "g", Level: "zone", Weight: 1e100}, {Group: "h", Level: orbit.NodeKey, Weight: -0.1}, {Group: "g", Level: orbit.NodeKey, Weight: 5}}
	spec, other := grouped("g"), grouped("g")
	spec.Spread.Level, spec.PreferCompany = "zone", wishes
	other.Spread.Level, other.PreferCompany = "zone", append([]orbit.Company{{Group: "h", Level: "zone"}}, wishes...)
	t.commits(submit(spec, "x", "y"), submit(other, "z"))
	for _, id := range []orbit.CapsuleID{"x", "y", "z"} {
		t.commits(place(id, "na"))
	}
	for id, want := range map[orbit.CapsuleID]*orbit.Spec{"x": spec, "y": spec, "z": other} {
		if have := t.capsule(id).Spec; have != t.canonical(want) {
			t.Failf("capsule %q wishes %v over %q; it must wish %v over %q", id, have.PreferCompany, have.Spread.Level, want.PreferCompany, want.Spread.Level)
		}
	}
	if wishes[0].Weight != 1e100 || wishes[1].Group != "h" {
		t.Failf("the ledger has changed what was proposed to %v", wishes)
	}
}
