package nav

import "errors"

// GatewayStats counts what a gateway has done since it was made.
type GatewayStats struct {
	Created    uint64 // creates that returned a node
	Warm, Cold uint64 // how those booted
	Lies       uint64 // booted cold though a warm slot was promised
	Retried    uint64 // went to a second node
	Failed     uint64 // creates that returned an error, refusals included
	Conflicts  uint64 // proposals lost to somebody else, and chosen again
	Refreshes  uint64 // of the view
	Partitions uint64 // refreshes in which telemetry failed
	// Creates that were refused, by kind.
	AllStale, NoSlot, NoVolume, NoTemplate, NoParent, NoNode uint64
}

// Stats returns the counts.
func (g *Gateway) Stats() GatewayStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

// tally changes the counts.
func (g *Gateway) tally(change func(*GatewayStats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.stats)
}

// count counts a create that is over.
func (g *Gateway) count(made *Created, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.stats
	switch {
	case err != nil:
		s.Failed++
		s.refuse(err)
		return
	case made.Warm:
		s.Warm++
	default:
		s.Cold++
	}
	s.Created++
}

// refuse counts a refusal by its kind.
func (s *GatewayStats) refuse(err error) {
	var e *WarmNoFit
	if !errors.As(err, &e) {
		return
	}
	for kind, n := range map[error]*uint64{
		ErrAllStale: &s.AllStale, ErrNoSlot: &s.NoSlot, ErrNoVolume: &s.NoVolume,
		ErrNoTemplate: &s.NoTemplate, ErrNoParent: &s.NoParent, ErrNoNode: &s.NoNode,
	} {
		if errors.Is(e.Kind, kind) {
			*n++
		}
	}
}
