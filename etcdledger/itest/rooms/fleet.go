package rooms

import (
	"context"
	"net/http"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// Template is what the hosts of the fleet have warm slots of.
const Template = "code"

// fleet keeps nodes under leases, takes their reports, feeds them to other processes, and creates sandboxes on the nodes.
func (s *site) fleet(ctx context.Context) (func(), error) {
	ledger, refreshes, stop, err := s.open(ctx, Fleet)
	if err != nil {
		return nil, err
	}
	keeper := &lease.Keeper{Ledger: ledger, Refreshes: refreshes, TTL: s.TTL, Terms: -1}
	local := &agent.Local{
		Ledger: ledger, Members: &lease.Members{Leases: keeper, Gone: s.Gone}, Board: &telemetry.Board{Leases: keeper}, Index: &watch.Index{Ledger: ledger},
	}
	local.Members.Hook = func(r lease.MemberRound) {
		var m message
		for _, term := range r.Ended {
			m.Ended = append(m.Ended, term.Name)
		}
		_ = s.self.Say(m)
	}
	gateway := &sandbox.Gateway{Ledger: ledger, Board: local.Board, Cache: 100 * time.Millisecond}
	s.mux.Handle("/agent/", http.StripPrefix("/agent", agent.Handler(local)))
	s.mux.HandleFunc("/feed", func(w http.ResponseWriter, r *http.Request) { _ = local.Board.Feed(r.Context(), flushing{w}) })
	s.mux.HandleFunc("/create/{id}", func(w http.ResponseWriter, r *http.Request) {
		made, err := gateway.Create(r.Context(), orbit.CapsuleID(r.PathValue("id")), &orbit.Spec{Start: orbit.Start{Template: Template}})
		answer(w, string(made.Node), err)
	})
	s.all.Go(func() { _ = local.Members.Run(ctx) })
	s.all.Go(func() { _ = local.Index.Run(ctx) })
	s.all.Go(func() { s.follow(ctx, local.Board) })
	return stop, nil
}

// answer writes a name, or an error.
func answer(w http.ResponseWriter, name string, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	_, _ = w.Write([]byte(name))
}

// flushing sends each part of an answer at once.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if err == nil {
		err = http.NewResponseController(f.ResponseWriter).Flush()
	}
	return n, err
}

// follow follows the boards that the process is told of, each until its process has ended.
func (s *site) follow(ctx context.Context, board *telemetry.Board) {
	for {
		select {
		case url := <-s.self.Told:
			s.all.Go(func() {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					return
				}
				if answer, err := http.DefaultClient.Do(request); err == nil {
					_ = board.Follow(ctx, answer.Body)
				}
			})
		case <-ctx.Done():
			return
		}
	}
}
