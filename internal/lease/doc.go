// Package lease has the states of one delivery.
//
//	Held ──settle──▶ Settling ──▶ Settled: the outcome is known
//	 │ ▲                ▲
//	 │ └─Extend─ Expired┤  its time ran out here; the database may still know it
//	 │                  │
//	 ├──AckTx─▶ InTx ───┘  a settle after a rollback, or the commit; AckTx also leads here from Expired
//	 └────────▶ Lost       the database says so, or Revoke has taken it from its reader; also from Expired and InTx
//
// All transitions are in lease.go. A lease knows its Owner, a consumer, which stores settles and extensions; an Owner is
// called with no lock held. Only Settle and Extend of an Owner may wait.
//
// A Period has the deadline, and a Context what the handler sees of it.
//
// There is no goroutine. A lease whose Context is used has a timer, which is stopped when the lease has ended. There are two locks, of
// that context, and under it of the list of an owner's contexts. Both are held for moments.
package lease
