package etcdledger

import (
	"time"

	"github.com/orbitsched/orbit"
)

// The lines of a dump, as [orbit.State.Dump] writes them, version 1.

type dumpHeader struct {
	Version    int                      `json:"version"`
	Revision   orbit.Revision           `json:"revision"`
	Order      uint64                   `json:"order"`
	Limits     orbit.Limits             `json:"limits"`
	Dimensions [orbit.Dimensions]string `json:"dimensions"`
	Left       dumpLeft                 `json:"left"`
}

// dumpLeft says when something of each kind was last removed.
type dumpLeft struct {
	Nodes    orbit.Revision `json:"nodes"`
	Capsules orbit.Revision `json:"capsules"`
	Holds    orbit.Revision `json:"holds"`
	Marks    orbit.Revision `json:"marks"`
	Groups   orbit.Revision `json:"groups"`
	Gangs    orbit.Revision `json:"gangs"`
}

type dumpNode struct {
	orbit.Node
	Usage         orbit.Revision `json:"usage"`
	Specification orbit.Revision `json:"specification"`
}

type dumpGang struct {
	ID      orbit.GangID   `json:"id"`
	Levels  []string       `json:"levels,omitempty"`
	Loose   bool           `json:"loose,omitempty"`
	Roles   []dumpRole     `json:"roles"`
	Changed orbit.Revision `json:"changed"`
}

type dumpRole struct {
	Name    string            `json:"name"`
	Spec    int               `json:"spec"`
	Members []orbit.CapsuleID `json:"members"`
	Min     int               `json:"min,omitempty"`
}

type dumpCapsule struct {
	ID        orbit.CapsuleID   `json:"id"`
	Spec      int               `json:"spec"`
	Owner     string            `json:"owner,omitempty"`
	Gang      orbit.GangID      `json:"gang,omitempty"`
	Role      int               `json:"role,omitempty"`
	Node      orbit.NodeID      `json:"node,omitempty"`
	Devices   orbit.DeviceSet   `json:"devices,omitempty"`
	Note      string            `json:"note,omitempty"`
	Submitted uint64            `json:"submitted"`
	Changed   orbit.Revision    `json:"changed"`
	PlacedAt  orbit.Revision    `json:"placedAt,omitempty"`
	PlacedBy  orbit.ProposalID  `json:"placedBy,omitzero"`
	Earlier   []placementRecord `json:"earlier,omitempty"`
	Released  bool              `json:"released,omitempty"`
	Begun     bool              `json:"begun,omitempty"`
	Adopted   bool              `json:"adopted,omitempty"`
	Another   bool              `json:"respecified,omitempty"`
	Ready     bool              `json:"ready,omitempty"`
	Waits     bool              `json:"waits,omitempty"`
	Remains   *orbit.Remains    `json:"remains,omitempty"`

	Labels     map[string]string `json:"labels,omitempty"`
	SubmitTime orbit.Instant     `json:"submitTime,omitempty"`
	PlaceTime  orbit.Instant     `json:"placeTime,omitempty"`
	Protected  time.Duration     `json:"protected,omitempty"`
	Borrows    *orbit.Nominee    `json:"borrows,omitempty"`
}

type dumpHold struct {
	orbit.Hold
	Changed orbit.Revision `json:"changed"`
}

type dumpMark struct {
	Key     string         `json:"key"`
	Value   string         `json:"value"`
	Changed orbit.Revision `json:"changed"`
}
