// Package schedule computes the nominal times of a job: cron expressions, intervals and
// calendars, with time zones and exclusions. It is pure: it reads no clock and draws no random
// number.
//
// # Model
//
// A [Spec] is plain data, stored and sent. [Compile] checks it and turns it
// into a [Schedule], which is immutable and may be shared by goroutines, unless
// it has a budget ([Schedule.Within]) or a memory ([Schedule.Remembering]). A
// nominal time is an instant in UTC with millisecond precision. It is fixed
// before jitter, backoff and hints, which delay a run and never rename it.
//
//   - none: no nominal time; the job runs on request only.
//   - once: the single instant At.
//   - interval, fixed rate: base + k*Every in elapsed time. With StartAt, base
//     is StartAt and k counts from 0; without it, base is the anchor (creation
//     of the generation) and k counts from 1. A late completion never moves
//     the phase.
//   - interval, fixed delay: completion + Every; the caller passes the
//     completion to Next. The first one is StartAt, or anchor + Every.
//   - cron: the union of up to 16 expressions, read in one time zone.
//   - calendar: local times of day in every n-th day, week or month of one time zone,
//     counted from the period in which From lies. They are fixed times of the clock.
//
// # Exclusions, jitter, runs
//
// [Exclusions] take nominal times out of an interval, a cron or a calendar, as if it did not
// have them. A fixed delay that ends in one is due when it is over, and so is whatever
// else would start in one ([Schedule.NextAllowed]). A local time that a gap shifts is excluded
// if it would be without the gap, or if the instant is that it is shifted to. A search that
// takes 2,000 steps over excluded times counts the schedule as ended. Days, windows and periods
// are passed over in one step each, and so is what an expression excludes without a gap on one
// day. [Schedule.Jittered] gives the due time of a nominal time. MaxRuns is for
// whoever keeps the state: the schedule counts no runs.
//
// # Window
//
// Nominal times lie in [StartAt, EndAt). Outside years 1 to 9999 there are none.
//
// # Cron grammar
//
// Five fields (minute, hour, day of month, month, day of week), six with a
// leading seconds field if Seconds is set. Lists, ranges (22-2 wraps around),
// steps, names (MON, JAN), ? for *, L, L-n, nW and LW in the day of month,
// FRI#3 and FRI#L in the day of week, 0 and 7 both Sunday. Also @hourly, @daily,
// @midnight, @weekly, @monthly, @yearly, @annually, and, as the only
// expression, @every with a duration (30s, 1h30m, 7d), which is an interval and no cron.
//
// H, H/step, H(low-high) and H(low-high)/step stand for numbers that the seed
// settles: the same for one job on every node, spread evenly over jobs.
//
// As in Vixie cron a field is unrestricted if its text starts with * (or ?).
// If both day fields are restricted a day matches either of them; otherwise it
// has to match both. So "0 0 1 * MON" is the 1st and every Monday, whereas
// "0 0 */2 * MON" is Mondays on odd days.
//
// # Changes of the clock
//
// An expression is wild if its minute or hour field starts with *, else it is
// fixed. Under [GapShift] and [RepeatFirst]:
//
//   - Wild expressions follow elapsed time: they skip what a gap skips and run
//     in both passes of a repeated hour.
//   - Fixed expressions whose time falls into a gap of at most 3 hours run
//     once, at the first instant after the gap, however many matches the gap
//     swallowed. In a longer gap (Apia lost 2011-12-30) the times do not exist.
//   - Fixed expressions run in the first pass of a repeat only.
//
// [RepeatLast] takes the last pass instead: a time that the clock will show again
// does not count yet.
//
// [GapSkip] runs nothing for a gap; [RepeatBoth] runs fixed expressions in both
// passes.
//
// Zone rules come from the tz database of the system and, where there is none,
// from the copy embedded in the binary; all nodes of a cluster must use the
// same one. Setting ZONEINFO to one file everywhere makes sure of it.
//
// # Invariants
//
//  1. Next(t) > t; Prev(t) <= t; Prev(Next(t)) = Next(t), and nothing nominal
//     lies strictly between t and Next(t). (Fixed delay has no Prev.)
//  2. Two nominal times of one schedule are never the same instant, so a change
//     of the clock or overlapping expressions cannot yield a run twice.
//  3. Count and Prev of an interval without exclusions take constant time however
//     much was missed.
//  4. Next and Prev of a cron inspect at most 41 years. Compile refuses
//     expressions without an instant in the 40 years after anchor or StartAt.
//  5. No text makes Compile panic.
//  6. No due time of Jittered reaches the next nominal time.
//  7. What seeds settle (H, jitter) is the same in every version.
package schedule
