package whatif

import (
	"context"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/place"
)

// mostMoved is the number of capsules that a fix moves at most.
const mostMoved = 8

// move returns a fix with the fewest moves after which a node takes the capsule; nil: none was found.
func (a *asker) move() *Fix {
	id := a.probe()
	submitted, err := a.state.With(orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: a.spec}}})
	if err != nil {
		return nil
	}
	draft, err := draftAt(context.Background(), submitted)
	if err != nil {
		return nil
	}
	search := moves.Search{Draft: draft, Engine: &place.Exhaustive{}, Most: mostMoved}
	found := search.Room([]*orbit.Capsule{submitted.Capsule(id)}, nil)
	if found == nil || len(found.Moved) == 0 || found.On(draft) != nil {
		return nil
	}
	f := &Fix{}
	for _, do := range draft.Propose().Do {
		p, is := do.(orbit.Place)
		if is && p.Capsule == id {
			f.Node, f.devices = p.Node, p.Devices
			continue
		}
		if is {
			f.Move = append(f.Move, Move{Capsule: p.Capsule, To: p.Node})
		}
		f.moves = append(f.moves, do)
	}
	return f
}
