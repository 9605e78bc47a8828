// Package telemetry keeps what nodes last said of themselves: the soft plane of orbit. Nothing in it is a
// promise, and losing all of it costs one round of reports.
//
// Nodes report their full state, again and again, to a [Board]. Views ask the board what has changed since
// they last asked. Most reports repeat the one before; they cost one comparison and reach nobody.
//
//	node ──Report, every 10 s──► Board ──Reports(after), only what changed──► View
//	                               ▲───────Latest(node), before it calls it stale──┘
package telemetry
