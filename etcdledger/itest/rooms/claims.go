package rooms

import (
	"context"
	"fmt"
	"net/http"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
)

// claims hands out slots to callers who wait.
func (s *site) claims(ctx context.Context) (func(), error) {
	ledger, _, stop, err := s.open(ctx, Claims)
	if err != nil {
		return nil, err
	}
	source := &claim.LedgerSource{Ledger: ledger}
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return stop, err
	}
	var missing []orbit.NodeID
	for i := range s.Slots {
		if id := orbit.NodeID(fmt.Sprintf("slot-%04d", i)); state.Node(id) == nil {
			missing = append(missing, id)
		}
	}
	if err := source.Join(ctx, missing...); err != nil {
		return stop, err
	}
	pool := &claim.Pool{Source: source}
	s.all.Go(func() { _ = pool.Run(ctx) })
	s.mux.HandleFunc("/claim/{id}", func(w http.ResponseWriter, r *http.Request) {
		slot, err := pool.Claim(r.Context())
		answer(w, slot.Name, err)
	})
	return stop, nil
}
