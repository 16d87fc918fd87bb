"""The bare loop as subjects of the measurement.

python -m bench.bare_loop
"""

from bench.bare import Bare, BareSqlite, BareSqliteFull
from bench.measure import main

if __name__ == "__main__":
    main(Bare(), BareSqlite(), BareSqliteFull())
