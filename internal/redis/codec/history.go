package codec

import (
	"strconv"

	"github.com/fermata-io/fermata/internal/core/job"
)

// HistoryField is the field of the history hash that holds a slot of a record.
func HistoryField(record job.RecordID, slot int) string {
	return string(record) + "." + strconv.Itoa(slot)
}

// AppendHistoryField appends what [HistoryField] returns to b.
func AppendHistoryField(b []byte, record job.RecordID, slot int) []byte {
	return strconv.AppendInt(append(append(b, record...), '.'), int64(slot), 10)
}
