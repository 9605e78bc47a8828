// Package inspect is a live page of a constellation, for a mux of the importer's own, as net/http/pprof is mounted:
//
//	page := &inspect.Handler{Ledger: ledger}
//	engine := &orbit.Engine{Name: "web", Ledger: ledger, Navigator: &nav.Services{}, OnRound: page.Round}
//	http.Handle("/debug/orbit/", page)
//
// It shows nodes by zone and rack with how full they are, passes and races as they settle with the receipts of those that have lost, what
// waits, budgets, holds and nominations. What waits is explained on request ([whatif.Explain]), and a node shows what it has. All of it
// is JSON beneath; README.md describes it.
//
//	Ledger ── Snapshot, while a client looks ─► frame ─┬─► JSON
//	Engines ── Round ─► the latest rounds ─────────────┴─► server-sent events ─► page
//
// The page only reads. It costs nothing while no client looks, but for the latest rounds, whose number is bounded. Requests from
// pages of other origins are refused; who else may look is for the importer's mux to say.
package inspect
