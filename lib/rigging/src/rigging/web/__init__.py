"""Web pages: the base of the cluster's dashboard and the experiment pages. Needs the extra `web`.

`app.create_app` builds an application from page sets (`pages.PageSet`), and `serving.serve` serves it. Programs without
pages import nothing from here.
"""
