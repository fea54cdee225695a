// Package chanqtest tests programs that use chanq, in milliseconds and without a server:
//
//	func TestAFailedMailIsSentTheNextDay(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			mails := openMails(t, chanqtest.DB(t), …) // your program
//			_, err := mails.jobs.Send(t.Context(), welcome.New(mail{"Ada"}))
//			require.NoError(t, err)
//			chanqtest.Drain(t, mails.work) // until all queues are idle
//			time.Sleep(24 * time.Hour)     // the retry is due
//			chanqtest.Drain(t, mails.work)
//			require.Empty(t, chanqtest.Sent(t, mails.jobs))
//		})
//	}
//
// In a bubble of testing/synctest, time.Sleep is time travel over delays, retries, leases, TTLs and schedules of chanqcron. Outside of a
// bubble use Travel. Crashes kills your program after each of its statements.
//
// Each test has its own databases, so your tests can run in parallel. If something hangs, your test fails with the state of the queues and
// a remedy.
package chanqtest
