// Package seats decides whether capsules fit together into a domain of a topology, and where they do.
//
//	draft ──► Index: what is free on each node, and how many members of a Shape fit there
//	       └► Table: the nodes of each domain of a level
//	Packer ─► domains in order ─► pack the nodes of one ─► Fit: a Seat for each member
//
// Its callers are the navigators, which place the members on these seats, and whatif, which says whether a navigator
// would. An Index belongs to one caller and is not for concurrent use.
package seats
