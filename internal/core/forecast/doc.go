// Package forecast computes how many runs will be due in each minute of the next day, by queue. It is pure: the
// clock, the jobs and the entries of the due index are arguments.
//
// # Model
//
// A [Shard] has what one shard contributes, from two reads:
//
//   - planned runs: the entries of the due index ([DueIndex.Add]). Each job that waits has one. They are exact at the
//     time of the read, whatever set the due time: a schedule, a retry, backoff, a hint.
//   - later occurrences: the nominal times of recurring jobs after their planned run. They are counted by group: the
//     jobs of a queue that have the same pattern of times ([Shard.AddJob]).
//
// A pattern is a schedule with H resolved, or an interval with a phase. The patterns of all shards are in one [Table].
// Phases are rounded to a cell: a minute, or a part of the interval. Each group has the range and the mean of what
// was rounded
// off; the runs of jobs with different phases are spread evenly over the range.
//
// [Build] adds up the shards for a time that may be later than the reads. The first occurrence of a pattern after that
// time is the planned run of its jobs, so it is left to the due index. All others are computed. That is why a read of
// the due index needs no definition, and why a job that has run meanwhile is not counted twice.
//
// # What is exact
//
//   - planned: exact when the due index was read.
//   - computed: nominal times of the definitions as they were read. Runs that are skipped, overlap or are retried later
//     are not foreseen.
//   - estimated: failing interval jobs go on with the interval that backoff gives now; a fixed delay supposes that each
//     run takes as long as the last one; due times with jitter are spread evenly.
//
// # Bounds
//
// A table has at most 8,000 patterns, a shard at most 4,000 groups. The jobs beyond are estimated: their occurrences
// are counted in cells of ten minutes, when they are read, in at most 128 rows a shard. Jobs beyond these are counted
// as left out. So a million jobs take less than 20 MB.
package forecast
