"""Build the documentation's site; see `site_builder.build`."""

from site_builder.build import main

if __name__ == "__main__":
    main()
