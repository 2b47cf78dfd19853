"""Pages in a browser: what the cluster's dashboard and the experiment pages stand on. Needs the extra `web`.

`app.create_app` makes an application of page sets (`pages.PageSet`), `serving.serve` serves it. Nothing here is
imported by programs that show no pages.
"""
