// Package lease has the states of one delivery.
//
//	Held ──settle──▶ Settling ──▶ Settled: the outcome is known
//	 │ ▲                ▲
//	 │ └─Extend─ Expired┤  its time ended here; the database might still have it
//	 │                  │
//	 ├──AckTx─▶ InTx ───┘  a settle after a rollback, or the commit; AckTx also leads here from Expired
//	 └────────▶ Lost       reported by the database, or revoked (Revoke); also from Expired and InTx
//
// All transitions are in lease.go. A lease knows its Owner, a consumer, which stores settles and extensions. An Owner
// is called with no lock held. Only its Settle and Extend may block.
//
// A Period has the deadline. A Context shows the handler the end of the lease. Its cause also tells whether a lost
// lease was cancelled.
//
// There is no goroutine. A lease whose Context is used has a timer, which is stopped when the lease has ended. There
// are two locks: that of a context and, locked under it, that of the list of an owner's contexts. Both are held
// briefly.
package lease
