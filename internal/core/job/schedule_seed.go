package job

// ScheduleSeed returns the seed of the job's schedule: it settles what H stands for, and how due times are spread.
func (k Key) ScheduleSeed() uint64 { return k.jitterSeed(0, 0) }
