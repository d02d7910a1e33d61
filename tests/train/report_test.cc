#include "san/train/report.h"
