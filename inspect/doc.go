// Package inspect serves a live web page about a constellation. The importer mounts it on its own mux, in the way
// net/http/pprof is mounted:
//
//	page := &inspect.Handler{Ledger: ledger}
//	engine := &orbit.Engine{Name: "web", Ledger: ledger, Navigator: &nav.Services{}, OnRound: page.Round}
//	http.Handle("/debug/orbit/", page)
//
// The page shows the nodes by zone and rack and how full they are; the passes of the engines and the outcome of their
// proposals, with the reason why a proposal was refused; the capsules that wait, to be placed or to begin; the trees of
// queues, with what each uses, lends and borrows; and budgets, holds and nominations. On request it explains why a
// capsule waits ([whatif.Explain]) and lists what is on a node. The page reads everything from a JSON API that README.md
// describes.
//
//	Ledger ── Snapshot, while a client looks ─► frame ─┬─► JSON
//	Engines ── Round ─► the latest rounds ─────────────┴─► server-sent events ─► page
//
// The page only reads. While no client is connected, the handler only records the latest rounds, in bounded memory. The
// handler refuses requests from pages of other origins. It does not authenticate clients; the importer's mux must do
// that.
package inspect
