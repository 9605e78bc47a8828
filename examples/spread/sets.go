package main

import "github.com/orbitsched/orbit"

// set is a replica set.
type set struct {
	name string
	// How many replicas it has at first; later it grows by half.
	replicas int
	spec     *orbit.Spec
	// The rules in words.
	rules string
	// How many replicas have been submitted.
	submitted int
}

const (
	zone = "zone"
	rack = "rack"
)

// makeSets makes the replica sets for a number of nodes.
func makeSets(nodes int) []*set {
	abc := []string{"a", "b", "c"}
	each := nodes / 20 // a multiple of two and three makes the tables easy to read
	each -= each % 6
	sets := []*set{
		{name: "web", replicas: 3 * each, rules: "even over zones a, b and c; one more at most"},
		{name: "api", replicas: 2 * each, rules: "one on a node; even over zones a, b and c, two more at most"},
		{name: "db", replicas: 12, rules: "one in a rack; even over zones a, b and c, of which there must be three"},
		{name: "backup", replicas: 12, rules: "in no rack with a db; even over zones a, b and c"},
		{name: "search", replicas: 2 * each, rules: "even over all racks in zones a, b and c"},
		{name: "proxy", replicas: each, rules: "has port 8080 of its node for itself; even over zones a, b and c, three more at most"},
		{name: "gate", replicas: each, rules: "wants port 8080, too; even over zones a, b and c"},
		{name: "queue", replicas: 2 * each, rules: "even over whatever zones there are"},
	}
	apart := map[string]orbit.Apart{
		"api": {Group: "api", Level: orbit.NodeKey}, "db": {Group: "db", Level: rack}, "backup": {Group: "db", Level: rack},
		"proxy": {Group: "port/8080", Level: orbit.NodeKey}, "gate": {Group: "port/8080", Level: orbit.NodeKey},
	}
	even := map[string]orbit.Even{
		"web": {Level: zone, MaxSkew: 1, Domains: abc}, "api": {Level: zone, MaxSkew: 2, Domains: abc}, "db": {Level: zone, MaxSkew: 1, MinDomains: 3, Domains: abc},
		"backup": {Level: zone, MaxSkew: 1, Domains: abc}, "search": {Level: rack, MaxSkew: 1}, "proxy": {Level: zone, MaxSkew: 3, Domains: abc},
		"gate": {Level: zone, MaxSkew: 1, Domains: abc}, "queue": {Level: zone, MaxSkew: 1},
	}
	for _, s := range sets {
		s.spec = &orbit.Spec{Module: s.name, Group: s.name, Movable: true}
		s.spec.Envelope.Reservation[orbit.CPU] = cores
		if rule, ok := apart[s.name]; ok {
			s.spec.Apart = []orbit.Apart{rule}
			if rule.Group == "port/8080" {
				s.spec.Groups = []string{rule.Group}
			}
		}
		rule := even[s.name]
		rule.Group = s.name
		s.spec.Even = []orbit.Even{rule}
		if s.name == "search" { // its domains are all racks of these zones, also those that join later
			s.spec.Require = []orbit.Predicate{{Key: zone, Op: "In", Values: abc}}
		}
	}
	return sets
}
