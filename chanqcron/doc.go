// Package chanqcron sends messages on schedules, the rows of a table in your database:
//
//	check(chanqcron.Migrate(ctx, db, chanq.Config{}))
//	cron := chanqcron.New(db, reports)
//	check(cron.Ensure(ctx, chanqcron.Schedule[Report]{
//		Name: "nightly", Line: "30 2 * * mon-fri", Zone: "Europe/Berlin", Message: chanq.Msg(Report{}),
//	}))
//	check(cron.Run(ctx)) // until ctx is cancelled
//
// Run it in any number of processes: there is no leader. Each tick is one transaction that moves the schedule to
// its next tick and sends the message. So a tick is neither lost nor sent twice, whichever process dies.
//
// Schedules stay in the table when you remove them from your code: call Remove, or the command chanq schedule remove.
//
// Zones have IANA names. If your program runs where their database is not installed, import time/tzdata.
package chanqcron
